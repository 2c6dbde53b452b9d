package inject

import (
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/secrets"
	"github.com/bailey-sandbox/bailey/policy"
)

// Issuer makes grants. One serves all sandboxes of a gate.
type Issuer struct {
	held *secrets.Held
	mark string

	mu       sync.Mutex
	searches map[string]*search // by the names of the secrets
}

// NewIssuer takes the unsealed secrets, and the mark that all placeholders of
// this installation carry: secrets.Store.Mark gives it.
func NewIssuer(held *secrets.Held, mark string) *Issuer { return &Issuer{held: held, mark: mark} }

// Grants are one sandbox's: they say what its placeholders stand for.
type Grants struct {
	from *Issuer

	mu       sync.RWMutex
	bindings map[string]*policy.Secret
	// names are what placeholders stand for; a revoked one stays, to be
	// recognised and to have its value taken out of answers.
	placeholders map[string]string // binding → placeholder
	stored       map[string]string // binding → secret of the store
	revoked      map[string]bool
	scan         *scanner // of what goes out

	scrub atomic.Pointer[scrubber] // of what comes in
}

var _ act.Secrets = (*Grants)(nil)

// Grant gives a sandbox placeholders for the secrets that its policy binds. A
// secret that is not held, or was revoked, is an error.
func (i *Issuer) Grant(bindings map[string]*policy.Secret) (*Grants, error) {
	return i.Restore(nil, bindings)
}

// Restore does the same for a sandbox that comes back, with the placeholders
// that it knows, which Save gave.
func (i *Issuer) Restore(saved []byte, bindings map[string]*policy.Secret) (*Grants, error) {
	g := &Grants{from: i, placeholders: map[string]string{}, stored: map[string]string{}, revoked: map[string]bool{}}
	if saved != nil {
		var s state
		if json.Unmarshal(saved, &s) != nil {
			return nil, bailey.Errorf(bailey.CodeStorage, "bring back the sandbox's placeholders", "", "what was saved of them is damaged")
		}
		maps.Copy(g.placeholders, s.Placeholders)
		maps.Copy(g.stored, s.Stored)
		for _, n := range s.Revoked {
			g.revoked[n] = true
		}
	}
	return g, g.Bind(bindings)
}

// state is what Save writes: no value is in it.
type state struct {
	Placeholders map[string]string `json:"placeholders"`
	Stored       map[string]string `json:"stored"`
	Revoked      []string          `json:"revoked,omitempty"`
}

// Save gives what Restore needs. It holds no value.
func (g *Grants) Save() []byte {
	g.mu.RLock()
	defer g.mu.RUnlock()
	s := state{Placeholders: g.placeholders, Stored: g.stored}
	for n := range g.revoked {
		s.Revoked = append(s.Revoked, n)
	}
	text, _ := json.Marshal(s) // maps of strings: it never fails
	return text
}

// Bind puts a new policy's bindings in force. Secrets that were not there get
// placeholders; those that are gone keep theirs, which is then recognised and
// refused.
func (g *Grants) Bind(bindings map[string]*policy.Secret) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	placeholders, stored := maps.Clone(g.placeholders), maps.Clone(g.stored)
	for name, b := range bindings {
		c := g.from.held.Peek(b.Name)
		if c == nil {
			return bailey.Errorf(bailey.CodeNotFound, "give the sandbox its secrets", "bailey secret set "+b.Name, "there is no secret %s", b.Name)
		}
		if c.Value == nil && stored[name] != b.Name {
			// One that was bound before is refused with each request: the sandbox runs.
			return bailey.Errorf(bailey.CodeSecretRevoked, "give the sandbox its secrets", "bailey secret set "+b.Name+", or leave it out", "the secret %s was revoked", b.Name)
		}
		stored[name] = b.Name
		if placeholders[name] == "" {
			placeholders[name] = placeholder(c, g.from.mark)
		}
	}
	g.placeholders, g.stored, g.bindings = placeholders, stored, maps.Clone(bindings)
	g.scan = newScanner(placeholders, g.from.mark)
	g.scrub.Store(nil)
	return nil
}

// Fork gives the grants of a copy of the sandbox: the same placeholders, which
// stand for the same secrets, until one of the two is revoked.
func (g *Grants) Fork() *Grants {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return &Grants{from: g.from, bindings: maps.Clone(g.bindings), placeholders: maps.Clone(g.placeholders), stored: maps.Clone(g.stored), revoked: maps.Clone(g.revoked), scan: g.scan}
}

// Revoke takes one secret away from this sandbox, for its next request on.
// Its copies keep theirs.
func (g *Grants) Revoke(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.revoked[name] = true
}

// Placeholders gives them by the names of their secrets.
func (g *Grants) Placeholders() map[string]string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return maps.Clone(g.placeholders)
}

// Environment gives the variables that hold placeholders inside.
func (g *Grants) Environment() map[string]string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	env := map[string]string{}
	for name, b := range g.bindings {
		if b.Env != "" && !g.revoked[name] {
			env[b.Env] = g.placeholders[name]
		}
	}
	return env
}
