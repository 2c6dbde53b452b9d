package act

import (
	"context"
	"net"

	"github.com/bailey-sandbox/bailey/policy"
)

// Web speaks HTTP on a sandbox's streams. Package web implements it, one per
// lineage, since it holds the certificate authority. Each method returns when
// the stream has ended, closes c, and ends at once when ctx does. Policy has
// said Allow or Continue for the stream at stage Connect, and nothing of it is
// in the log: every request is an act of its own (box.Begin), and a stream that
// fails before its first request is one that Web refuses and records.
type Web interface {
	// ServeTLS terminates TLS on c, which begins with a ClientHello. to is where
	// the stream was going: the name behind the address.
	ServeTLS(ctx context.Context, box Box, c net.Conn, to policy.Authority, via Via)
	// ServePlain does the same without TLS.
	ServePlain(ctx context.Context, box Box, c net.Conn, to policy.Authority, via Via)
	// ServeProxy serves a client that takes the gate for its HTTP proxy. Requests
	// in absolute form are Web's; for CONNECT it calls open.
	ServeProxy(ctx context.Context, box Box, c net.Conn, open Open)
}

// Open asks for a stream to where a CONNECT wants to go. A refusal is recorded
// already and given back as a denial to answer with; err is an upstream that
// cannot be reached, recorded as well, its text fit for the sandbox. Otherwise
// serve must be called once: with the connection, after the client was told that
// it is open, to serve it to its end; or with nil to give up.
type Open func(ctx context.Context, to policy.Authority) (serve func(c net.Conn), refused *Denial, err error)
