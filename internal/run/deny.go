package run

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// deny keeps what the request denies out of the sandbox: what must not be read
// is covered with something empty, what must not be written is shown read-only.
// Names are those of the host, wherever inside its files are seen. It comes when
// all else has its place.
func (b *builder) deny() (notes []hostview.Note, err error) {
	var covers []driver.Place
	for _, p := range b.req.DenyRead {
		over, err := b.denyPath(p, func(at seen, dir bool) driver.Place {
			return driver.Place{Kind: driver.Mask, Target: at.inside, IsDir: dir}
		}, false)
		if errors.Is(err, fs.ErrNotExist) {
			notes = append(notes, hostview.Note{Subject: p, Text: "it is not there, so that there is nothing to hide; what the sandbox makes there is its own"})
			continue
		}
		if err != nil {
			return nil, err
		}
		covers = append(covers, over...)
	}
	for _, p := range b.req.DenyWrite {
		over, err := b.denyPath(p, func(at seen, dir bool) driver.Place {
			return driver.Place{Kind: driver.Bind, Target: at.inside, Source: at.host, IsDir: dir, ReadOnly: true, HostIDs: true}
		}, true)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, bailey.Errorf(bailey.CodeNotAvailable, "keep "+p+" from being written", "make it on the host, or deny the folder above it",
				"it is not there, and what is not there cannot be shown read-only")
		}
		if err != nil {
			return nil, err
		}
		covers = append(covers, over...)
	}
	// The read-only views come first: what is hidden below one stays hidden.
	slices.SortStableFunc(covers, func(a, b driver.Place) int {
		if a.Kind != b.Kind {
			if a.Kind == driver.Bind {
				return -1
			}
			return 1
		}
		return len(a.Target) - len(b.Target)
	})
	b.root.Places = append(b.root.Places, covers...)
	return notes, nil
}

// seen is a file of the host and the name under which the sandbox sees it.
type seen struct{ host, inside string }

// denyPath gives what has to be put over every place where p is seen. With
// writing only those where it could be written.
func (b *builder) denyPath(p string, cover func(at seen, dir bool) driver.Place, writing bool) ([]driver.Place, error) {
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		real = p
	}
	var covers []driver.Place
	for _, place := range b.root.Places {
		source, ok := b.sourceOf(place)
		if !ok || writing && (place.ReadOnly || place.Kind != driver.CoW && place.Kind != driver.Bind && place.Kind != driver.Scratch) {
			continue
		}
		at := seen{host: real}
		switch {
		case within(source.host, real): // all of it
			if !writing && b.isRoot(place.Target) {
				return nil, bailey.Errorf(bailey.CodeUsage, "hide "+p, "work in another folder, or change the policy", "the workspace %s lies in it", place.Target)
			}
			at = seen{source.host, place.Target}
		case within(real, source.host):
			rest := strings.TrimPrefix(real, source.host)
			at = seen{path.Join(source.kept, rest), path.Join(place.Target, rest)}
		default:
			continue
		}
		fi, err := os.Lstat(at.host)
		if err != nil {
			return nil, err
		}
		if at.host == source.host {
			at.host = source.kept
		}
		covers = append(covers, cover(at, fi.IsDir()))
	}
	return covers, nil
}

// shownSource is a folder of the host that a place shows, and where its files
// are taken from: a copy has them elsewhere.
type shownSource struct{ host, kept string }

// sourceOf gives it; false for what is the sandbox's own.
func (b *builder) sourceOf(p driver.Place) (shownSource, bool) {
	switch p.Kind {
	case driver.Bind:
		if !within(p.Source, b.host.Folder.Path()) {
			return shownSource{p.Source, p.Source}, true
		}
	case driver.CoW:
		low := p.Overlay.Lower[0]
		if host, ok := b.copied(low); ok {
			return shownSource{host, low}, true
		}
		return shownSource{low, low}, true
	case driver.Scratch:
		for _, r := range b.plan.Roots {
			if r.Path == p.Target && p.Source == workspace.Tree(b.base.there, r) {
				return shownSource{r.Path, p.Source}, true
			}
		}
	case driver.File: // a copy of a small file of the host's /etc
		if b.req.Level == bailey.IsolationProcess && within(p.Target, "/etc") {
			return shownSource{p.Target, p.Target}, true
		}
	}
	return shownSource{}, false
}

func (b *builder) isRoot(target string) bool {
	for _, r := range b.plan.Roots {
		if r.Path == target {
			return true
		}
	}
	return false
}
