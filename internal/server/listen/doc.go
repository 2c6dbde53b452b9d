// Package listen makes the daemon's listeners: the unix socket in the data folder,
// which only its owner may connect to, and TCP with TLS by given certificates, by an
// authority of its own, or by ACME.
//
// It touches bailey.sock and the folder tls of the data folder.
package listen
