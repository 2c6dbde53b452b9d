package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// moveIn gives a box the folder, locks and way out of what was made ahead for it.
func (b *box) moveIn() {
	from := b.warm.box
	b.lock, b.held, b.way = from.lock, from.held, from.way
	from.lock, from.held, from.way = nil, nil, nil
	b.warm.g.box = b
	os.Remove(filepath.Join(b.dir, warmMark)) // a row names it: left behind it says nothing
}

// becomes makes what was made ahead the sandbox that was asked for: its environment,
// name and policy. What is left is the same for all, and is done afterwards.
func (e *Engine) becomes(ctx context.Context, b *box, w *warm) error {
	e.trace("become")
	r := b.record()
	var more []string
	for name, value := range r.Spec.Env {
		more = append(more, name+"="+value)
	}
	slices.Sort(more)
	if r.Held != nil {
		more = append(more, r.Held.Env...)
	}
	if b.way != nil {
		placeholders, err := e.putPolicy(ctx, b, w)
		if err != nil {
			return err
		}
		for _, kv := range more {
			name, _, _ := strings.Cut(kv, "=")
			if slices.ContainsFunc(placeholders, func(p string) bool { return strings.HasPrefix(p, name+"=") }) {
				return bailey.Errorf(bailey.CodeUsage, "set "+name, "leave the variable "+name+" out", "it is a secret's placeholder inside")
			}
		}
		w.g.env = withEnv(w.g.env, placeholders)
	}
	w.g.env = withEnv(w.g.env, more)
	if dir := e.workdirOf(r); dir != "" {
		w.l.workdir, w.g.workdir = dir, dir
	}
	if r.Hostname != w.box.id {
		return e.rename(ctx, w, r.Hostname)
	}
	return nil
}

// putPolicy puts a sandbox's policy in the place of the one that lets nothing through,
// and gives the placeholders of its secrets.
func (e *Engine) putPolicy(ctx context.Context, b *box, w *warm) ([]string, error) {
	p, err := policyOf(b.record().Spec)
	if err != nil {
		return nil, err
	}
	ways, err := e.gate()
	if err != nil {
		return nil, err
	}
	u, err := ways.Update(ctx, b.id, p)
	if err != nil {
		return nil, err
	}
	opened := *b.way.opened
	opened.Env = append(slices.Clone(opened.Env), u.Env...)
	b.way = &boxWay{opened: &opened, policy: p}
	saved := u.Saved
	if len(saved) == 0 {
		saved = w.box.record().Way
	}
	return u.Env, e.update(ctx, b, func(r *record) {
		r.Way, r.Sandbox.Policy, r.Sandbox.Egress = saved, u.Policy, driver.EgressTransparent
	})
}

// rename gives a sandbox that runs another host name, in its namespace and in the
// files that have it.
func (e *Engine) rename(ctx context.Context, w *warm, name string) error {
	what := "name the sandbox " + w.box.id
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never given back: the thread ends with its namespace
		ns, err := unix.Open("/proc/"+strconv.Itoa(w.g.instance.Pid())+"/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			if err = unix.Setns(ns, unix.CLONE_NEWUTS); err == nil {
				err = unix.Sethostname([]byte(name))
			}
			unix.Close(ns)
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		return bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
	}
	client, err := w.g.speak(ctx)
	if err != nil {
		return err
	}
	for _, p := range w.l.spec.Root.Places {
		if p.Kind != driver.File || !bytes.Contains(p.Content, []byte(w.box.id)) {
			continue
		}
		text := bytes.ReplaceAll(p.Content, []byte(w.box.id), []byte(name))
		if _, sown := w.l.seeds[p.Target]; sown {
			sum := sha256.Sum256(text)
			w.l.seeds[p.Target] = hex.EncodeToString(sum[:]) // as in sow
		}
		mode := uint32(p.Mode.Perm())
		if _, err := client.WriteFile(ctx, p.Target, bytes.NewReader(text), guest.WriteOptions{Mode: mode}); err != nil {
			return bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
		}
	}
	return nil
}
