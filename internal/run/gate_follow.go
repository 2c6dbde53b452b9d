package run

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
)

// followBeat is how often a followed document is looked at. A change is read
// when two looks agree, so that a file is not read while it is being written.
const followBeat = 200 * time.Millisecond

// mark tells that a file is another than before, without reading it.
type mark struct {
	size, changed int64
	inode         uint64
}

func markOf(fi fs.FileInfo) mark {
	m := mark{size: fi.Size(), changed: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		m.inode = st.Ino
	}
	return m
}

// followed gives the real path of the document that is to be followed; "" if
// there is none, or if the command inside could change it: it would be its own
// judge.
func (b *builder) followed() string {
	g := b.req.Gate
	if !g.Follow || g.Policy.Document == nil {
		return ""
	}
	p, err := filepath.Abs(g.Policy.Document.Name)
	if err == nil {
		p, err = filepath.EvalSymlinks(p)
	}
	if err != nil {
		g.notice("changes of the policy are not followed: " + err.Error())
		return ""
	}
	for _, place := range b.root.Places {
		if place.Kind == driver.Bind && !place.ReadOnly && within(p, place.Source) {
			g.notice("changes of the policy are not followed, since the command can write to " + p)
			return ""
		}
	}
	return p
}

// follow puts each new version of the document in force until ctx ends.
func (g *Gate) follow(ctx context.Context, p string, was control.Session) {
	last := g.Policy.Document.Text
	var seen, read mark // at the last look, and when it was read
	for tick := time.NewTicker(followBeat); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		fi, err := os.Lstat(p)
		if err != nil || !fi.Mode().IsRegular() {
			continue // it is being replaced, or gone: what was said last holds
		}
		m := markOf(fi)
		if m == read || m != seen {
			seen = m
			continue
		}
		read = m
		d, err := ReadPolicy(p)
		if err == nil && bytes.Equal(d.Text, last) {
			continue
		}
		next := g.Policy
		next.Document = d
		var updated control.Updated
		var checked control.Checked
		if err == nil {
			last, d.Name = d.Text, g.Policy.Document.Name
			checked, err = g.process.Client.Check(ctx, next)
		}
		if err == nil {
			err = g.process.Secrets(next)
		}
		if err == nil {
			updated, err = g.process.Client.Update(ctx, g.sandbox, next)
		}
		switch {
		case ctx.Err() != nil || !g.process.Alive():
			return
		case err != nil:
			g.notice("the policy has changed and is not in force, the one before is: " + err.Error())
			continue
		}
		g.notice("the policy has changed: " + updated.Policy + " is in force")
		for _, n := range updated.Notes {
			g.notice(n)
		}
		if !reflect.DeepEqual(checked.Session, was) {
			g.notice("what the policy says beside the network, such as limits and paths, holds from the next run on")
			was = checked.Session
		}
	}
}
