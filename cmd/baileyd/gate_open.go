package main

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate"
	"github.com/bailey-sandbox/bailey/internal/gate/ca"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/gate/names"
	"github.com/bailey-sandbox/bailey/internal/gate/web"
	"github.com/bailey-sandbox/bailey/internal/secrets"
	"github.com/bailey-sandbox/bailey/policy"
)

// saved is what of a sandbox's way outlives the gate, as control.Open.Saved.
type saved struct {
	Seq    int64           `json:"seq"`              // the highest is the newest: one that it tells by itself may come late
	Grants json.RawMessage `json:"grants,omitempty"` // inject.Grants.Save
	State  gate.State      `json:"state,omitzero"`
}

// Open implements control.Gate.
func (g *gateway) Open(ctx context.Context, o control.Open, file *os.File) (_ *control.Opened, err error) {
	defer func() {
		if file != nil {
			file.Close()
		}
	}()
	p, err := combine(o.Policy)
	if err != nil {
		return nil, err
	}
	if err := g.start(); err != nil {
		return nil, err
	}
	var before saved
	if len(o.Saved) > 0 && json.Unmarshal(o.Saved, &before) != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "open the sandbox's way out", "", "what was saved of it is damaged")
	}
	ctx, cancel := context.WithTimeout(ctx, secretsWithin)
	defer cancel()
	mark, err := g.await(ctx, p)
	if err != nil {
		return nil, err
	}
	w := &opening{session: o.Session, saved: before.Grants, seq: before.Seq}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	authority, leave, err := g.authorityOf(ctx, o.Lineage, o.Sandbox)
	if err != nil {
		return nil, err
	}
	w.leave = leave
	opened, err := g.prepare(o, p, w, authority, mark)
	if err != nil {
		return nil, err
	}
	sandbox := gate.Sandbox{ID: o.Sandbox, Session: o.Session, Policy: p, Web: w.web, State: before.State}
	sandbox.AskTimeout, sandbox.Unattended = patience(o.Ask, p)
	if w.grants != nil {
		sandbox.Secrets = w.grants
	}
	if file != nil {
		taken := file
		file = nil
		if sandbox.Names, err = names.Load(taken); err != nil {
			return nil, err
		}
		w.names = sandbox.Names
	}
	if err := g.logPolicy(o.Sandbox, o.Session, p, o.Policy); err != nil {
		return nil, err
	}
	if w.box, err = g.server.Add(sandbox); err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.open[o.Sandbox] = w
	g.tidyLater()
	g.mu.Unlock()
	opened.Saved = w.save()
	opened.Confinement = slices.Concat(g.report.Done, prefixed("missing: ", g.report.Missing))
	return opened, nil
}

func prefixed(prefix string, list []string) (out []string) {
	for _, s := range list {
		out = append(out, prefix+s)
	}
	return out
}

// prepare makes what is the sandbox's own.
func (g *gateway) prepare(o control.Open, p *policy.Policy, w *opening, authority *ca.Authority, mark string) (*control.Opened, error) {
	var err error
	if w.web, err = web.New(web.Options{Authority: authority, Roots: g.roots}); err != nil {
		return nil, err
	}
	opened := &control.Opened{Policy: p.Digest(), Certificate: authority.Certificate(), Env: ca.Env(trustDir), Notes: notes(p)}
	if err := g.bind(w, p, mark); err != nil {
		return nil, err
	}
	for _, kv := range w.environment() {
		opened.Env = append(opened.Env, kv)
		name, _, _ := strings.Cut(kv, "=")
		opened.Placeholders = append(opened.Placeholders, name)
	}
	files, err := authority.Files(g.layout(o.Root))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		opened.Files = append(opened.Files, control.File{Path: f.Path, Mode: 0o644, Content: f.Data})
	}
	text := description(p)
	opened.Files = append(opened.Files, control.File{Path: path.Join(trustDir, "policy.txt"), Mode: 0o644, Content: []byte(text)})
	opened.Env = append(opened.Env, "BAILEY_POLICY="+path.Join(trustDir, "policy.txt"))
	for _, d := range p.Describe() {
		opened.Descriptions = append(opened.Descriptions, d.Action+": "+d.Text)
	}
	return opened, nil
}

// trustDir is the folder inside for what the variables of ca.Env name.
const trustDir = "/etc/bailey"

// layout describes a root file system to package ca, as the starter has seen it.
func (g *gateway) layout(r control.Root) ca.Layout {
	return ca.Layout{
		Dir: trustDir, Roots: g.bundle,
		Read: func(p string) ([]byte, error) {
			for _, b := range r.Bundles {
				if b.Path == p {
					return b.Content, nil
				}
			}
			return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
		},
		Has: func(p string) bool { return slices.Contains(r.Stores, p) },
		Glob: func(pattern string) (found []string) {
			for _, p := range r.Stores {
				if ok, _ := path.Match(pattern, p); ok {
					found = append(found, p)
				}
			}
			return found
		},
	}
}

// await waits for the secrets of a policy, and gives the mark of placeholders.
func (g *gateway) await(ctx context.Context, p *policy.Policy) (mark string, err error) {
	names := secretNames(p)
	if len(names) == 0 {
		return "", nil
	}
	return g.feed.Wait(ctx, names)
}

// secretsWithin is how long secrets may take to come: some are asked of commands.
const secretsWithin = secrets.CommandTimeout + 10*time.Second

// secretNames gives the secrets of the store that a policy binds.
func secretNames(p *policy.Policy) (names []string) {
	for _, s := range p.Secrets() {
		names = append(names, s.Name) // two bindings may stand for one secret
	}
	slices.Sort(names)
	return slices.Compact(names)
}
