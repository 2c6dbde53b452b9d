// Package dial connects to names. It resolves them itself, holds every address
// against what may be reached, and dials exactly the addresses that it checked;
// the kernel's last word on where a socket goes is checked once more.
//
// What may be reached is a public address, or one in a range that the rule
// names. Metadata services of clouds and the gate's own addresses are never
// reached. A name server, a hosts file or a redirect can thus lead a stream to
// another public address, and nowhere else; TLS is verified by name behind that.
package dial
