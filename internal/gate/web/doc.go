// Package web speaks HTTP for a sandbox: it terminates TLS with the lineage's
// authority, reads HTTP/1 with a strict parser of its own and HTTP/2 with
// net/http's, has each request judged, puts secrets in, and sends it on over
// connections that belong to the sandbox and the rule.
//
// Nothing of a request is passed on as it was written: it is read, checked and
// written anew. The server's certificate is always verified, against the name
// that policy allowed.
package web
