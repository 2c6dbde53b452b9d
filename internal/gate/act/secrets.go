package act

import (
	"context"
	"net/http"

	"github.com/bailey-sandbox/bailey/policy"
)

// Secrets are one sandbox's grants. Package inject implements it; a box without
// secrets has none (nil).
type Secrets interface {
	// Request works on a request that policy has allowed, before it is sent. It
	// puts values in for placeholders where the grant covers them, sets what the
	// gate sets itself, and gives the names it used. The body is wrapped, or read
	// and replaced with its length put right. A *Refused error means that the
	// request must not go: a placeholder on its way elsewhere, a foreign
	// credential on a pinned host, a value over plain HTTP. A placeholder that
	// shows itself only in the middle of a streamed body ends that body with a
	// *Refused error.
	Request(ctx context.Context, r *http.Request, pr policy.Request, rule *policy.Rule) (used []string, err error)
	// Response takes echoes of values out of an answer: headers, trailers and
	// body, which is decoded where it has to be. found is called for each.
	Response(resp *http.Response, found func(n int)) error
	// Outgoing and Incoming do the same for the payload of one WebSocket message.
	Outgoing(text []byte, pr policy.Request, rule *policy.Rule) ([]byte, error)
	Incoming(text []byte, found func(n int)) []byte
	// Opaque looks for placeholders in bytes that nobody understands, such as a
	// raw stream's, and gives an error to end it with.
	Opaque() (look func(p []byte) error)
	// Clean takes values and placeholders out of a text that will be logged.
	Clean(text string) string
}
