package main

import (
	"context"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/ca"
	"github.com/bailey-sandbox/bailey/internal/secrets"
)

// lineageKind is the kind under which authorities are sealed.
const lineageKind = "authority"

// lineageName is the name under which one is sealed: it begins with a letter.
func lineageName(lineage string) string { return "l-" + lineage }

// lineage is a certificate authority that several sandboxes may have.
type lineage struct {
	authority *ca.Authority
	users     int
}

// authorityOf gives a lineage's certificate authority, which the vault has been
// told to give. That of a sandbox which is a lineage alone is nowhere but in
// this memory. Whoever has it calls leave.
func (g *gateway) authorityOf(ctx context.Context, name, sandbox string) (a *ca.Authority, leave func(), err error) {
	if name == "" {
		a, err := ca.New(sandbox)
		if err != nil {
			return nil, nil, err
		}
		return a, a.Destroy, nil
	}
	text, err := g.feed.Blob(ctx, lineageKind, name)
	if err != nil {
		return nil, nil, err
	}
	defer clear(text)
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lineages[name]
	if l == nil {
		if a, err = ca.Unmarshal(text); err != nil {
			return nil, nil, err
		}
		l = &lineage{authority: a}
		g.lineages[name] = l
	}
	l.users++
	return l.authority, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if l.users--; l.users == 0 {
			l.authority.Destroy()
			delete(g.lineages, name)
		}
	}, nil
}

// sealedAuthority is the vault's part: it unseals a lineage's authority, or makes
// and seals one.
func sealedAuthority(store *secrets.Store, lineage string) ([]byte, error) {
	text, err := store.Unseal(lineageKind, lineageName(lineage))
	if bailey.CodeOf(err) != bailey.CodeNotFound {
		return text, err
	}
	a, err := ca.New(lineage)
	if err != nil {
		return nil, err
	}
	defer a.Destroy()
	if text, err = a.Marshal(); err != nil {
		return nil, err
	}
	return text, store.Seal(lineageKind, lineageName(lineage), text)
}
