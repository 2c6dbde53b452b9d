package access

import (
	"context"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/engine"
)

// Scope is a kind of operation that a key may be for.
type Scope string

// The scopes. Each is for itself; admin has them all.
const (
	Read  Scope = "read"  // look at sandboxes, output, files, events
	Exec  Scope = "exec"  // act inside sandboxes: commands, input, files, ports
	Write Scope = "write" // make, change and end sandboxes, snapshots, sessions, templates, volumes
	Admin Scope = "admin" // act on what others have, and on keys, webhooks and the host
)

// Scopes are all of them.
var Scopes = []Scope{Read, Exec, Write, Admin}

// Identity is who asks.
type Identity struct {
	engine.Caller
	Scopes []Scope
}

// Needs gives an error with code forbidden unless the scope is there. what
// completes the sentence "cannot …".
func (i Identity) Needs(s Scope, what string) error {
	if slices.Contains(i.Scopes, s) || slices.Contains(i.Scopes, Admin) {
		return nil
	}
	if i.Name == "" {
		return bailey.Errorf(bailey.CodeUnauthorized, what, "send a key: Authorization: Bearer bailey_…", "nobody knows who asks")
	}
	have := make([]string, len(i.Scopes))
	for n, s := range i.Scopes {
		have[n] = string(s)
	}
	return bailey.Errorf(bailey.CodeForbidden, what, "use a key with the scope "+string(s), "%s has only: %s", i.Name, strings.Join(have, ", "))
}

type identityKey struct{}

// With gives a context in which From finds the identity.
func With(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// From gives who asks; the zero Identity, which may do nothing, where nobody was let in.
func From(ctx context.Context) Identity {
	i, _ := ctx.Value(identityKey{}).(Identity)
	return i
}
