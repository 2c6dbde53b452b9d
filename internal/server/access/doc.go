// Package access finds out who asks, and refuses who may not: peer credentials on
// the unix socket, API keys elsewhere, rate limits, and the Host and Origin headers
// of requests that a web page could have made a browser send.
//
// It touches the table of keys in the state database, of which only hashes are
// kept, and nothing else.
package access
