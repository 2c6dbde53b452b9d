//go:build linux

package cgroup

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Sweep removes the groups of sandboxes whose owners are dead, as alive tells
// by name, and gives the names of those removed. What cannot be removed by the
// end of ctx is in the error; the rest is removed all the same.
//
// Where the Host has an owner (SetOwner), processes that are left in such a
// group are killed. alive must be sure: an owner takes the lock of its run
// before it makes the group, so a group without a lock that is held is
// nobody's. Without an owner, the group may belong to a Bailey with another
// data folder, which alive knows nothing of; then only groups without processes
// are removed.
func Sweep(ctx context.Context, h *Host, alive func(name string) bool) ([]string, error) {
	var removed []string
	var errs []error
	for _, name := range Stale(h, alive) {
		g, err := Open(h, name)
		if err == nil {
			err = g.sweep(ctx)
		}
		switch {
		case err == nil:
			removed = append(removed, name)
		case bailey.CodeOf(err) != bailey.CodeNotFound && !errors.Is(err, unix.EBUSY):
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}

// Stale gives the names of the groups that Sweep would try to remove, and touches none.
func Stale(h *Host, alive func(name string) bool) (names []string) {
	bases := []string{h.v2, h.freeze}
	for _, c := range Controllers {
		bases = append(bases, h.v1[c])
	}
	var seen []string
	for _, base := range bases {
		if base == "" {
			continue
		}
		for _, dir := range subgroups(base) {
			name, ok := h.nameOf(filepath.Base(dir))
			if !ok || slices.Contains(seen, name) {
				continue
			}
			seen = append(seen, name)
			if !alive(name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func (g *Group) sweep(ctx context.Context) error {
	if g.host.owner == "" {
		// Version 2 goes first here: it holds every process, so if that is in
		// use nothing else is touched.
		if g.v2 != "" {
			if err := remove(g.v2); err != nil {
				return err
			}
		}
		return g.removeAll()
	}
	if err := g.Kill(ctx); err != nil {
		return err
	}
	return g.Remove(ctx)
}
