package act

import "context"

type clientKey struct{}

// WithClient notes in a stream's context who began it: the address and port of
// the client's end, inside the sandbox.
func WithClient(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, clientKey{}, address)
}

// Client gives what WithClient noted, or "".
func Client(ctx context.Context) string {
	s, _ := ctx.Value(clientKey{}).(string)
	return s
}
