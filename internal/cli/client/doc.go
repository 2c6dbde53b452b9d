// Package client is the commands that speak to the daemon: one file for each kind
// of thing. A command reads its flags, asks the daemon by package client, and shows
// what came of it. It knows nothing of sandboxes that the daemon does not tell.
//
// A daemon that is not there is started, by start.go, unless BAILEY_URL names
// another machine's. What comes out of a sandbox is filtered before a terminal
// sees it.
package client
