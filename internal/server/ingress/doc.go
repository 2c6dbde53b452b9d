// Package ingress leads requests from outside to ports of sandboxes: a request to
// https://PORT-ID.DOMAIN goes to that port of that sandbox, which it wakes. It is an
// origin of its own for each port, so that no page of one sandbox has a hold on
// another; what lets a request in (token, link, cookie) never reaches the sandbox,
// and nothing that the sandbox answers is valid for another name.
package ingress
