package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/changes"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// guardedNames are what a host's git runs or obeys the next time anybody, or an
// editor by itself, asks for the status of the workspace. They are read-only
// under --writable while the command runs. Everything else that executes on
// the host is looked at when the command has ended, see guard.
var guardedNames = []string{".git/hooks", ".git/config", ".git/info/attributes"}

// guarded covers guardedNames of a folder that is written straight through, by
// its index among the roots: all but the first are git folders themselves.
// Nothing is made on the host for it: what is not there cannot be covered.
func (b *builder) guarded(index int, root string) []driver.Place {
	var places []driver.Place
	for _, name := range guardedNames {
		if index > 0 {
			name = strings.TrimPrefix(name, ".git/")
		}
		p := filepath.Join(root, name)
		fi, err := os.Lstat(p)
		if err != nil || b.named(index, name) || !fi.IsDir() && !fi.Mode().IsRegular() {
			continue
		}
		places = append(places, driver.Place{Kind: driver.Bind, Source: p, Target: p, IsDir: fi.IsDir(), ReadOnly: true, HostIDs: true})
	}
	return places
}

// named says whether the person has allowed a file that executes on the host
// to be written.
func (b *builder) named(_ int, path string) bool {
	return len(b.req.Named) > 0 && changes.Selection{Only: b.req.Named}.Has(path)
}

// guard remembers the files that execute on the host, before a command that
// writes straight through. The function it gives takes back what the command
// did to them: they are as they were, and what it made of them is a change set
// like any other.
func (b *builder) guard(ctx context.Context) (after func(context.Context) error, err error) {
	if !b.req.Writable {
		return func(context.Context) error { return nil }, nil
	}
	if err := (changes.Selection{Only: b.req.Named}).Check(); err != nil {
		return nil, err
	}
	s, err := changes.SnapshotExecClass(ctx, b.run, b.plan.Roots, b.named)
	if err != nil {
		return nil, err
	}
	stop, err := s.Beat(b.req.Named)
	if err != nil {
		s.Close()
		return nil, err
	}
	return func(ctx context.Context) error {
		stop()
		// The command may have filled the disk, and this needs room.
		folder.RemoveTree(filepath.Join(b.base.here, scratchDir))
		// The command has ended; whoever gave up waiting for it still gets this.
		ctx = context.WithoutCancel(ctx)
		found, err := s.FindNewExecClass(ctx, b.named)
		leave := s.Close // what cannot be looked into is a person's to look at
		if len(found) > 0 {
			if qerr := s.Quarantine(ctx, found); qerr != nil {
				leave = s.Leave // the next start of Bailey tries again
				err = errors.Join(err, qerr)
			}
		}
		if err != nil {
			leave()
			return bailey.Errorf(bailey.CodeStorage, "take back all that would execute on the host", "look at what is named here before any tool does", "%w", err)
		}
		return s.Close()
	}, nil
}
