package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/view"
)

// mounts are those of one RUN.
type mounts struct {
	stage *stage
	ctx   context.Context
	list  []Mount
	keys  []string // what of them is in the step's key
	late  []func() error
	locks []*os.File
}

func (m *mounts) close() {
	for _, l := range m.locks {
		l.Close()
	}
}

// real is where a target is once links of the image have been followed, as the
// machine makes it.
func (m *mounts) real(v *view.View, target string) string {
	if p, err := v.Resolve(target); err == nil {
		return p
	}
	return target
}

// plan reads the flags. What costs something is done by make, when the step is
// really run.
func (m *mounts) plan(flags []*instructions.Mount) error {
	for _, f := range flags {
		var err error
		switch f.Type {
		case instructions.MountTypeCache:
			err = m.cache(f)
		case instructions.MountTypeSecret:
			err = m.secret(f)
		case instructions.MountTypeTmpfs:
			err = m.tmpfs(f)
		case instructions.MountTypeBind:
			err = m.bind(f)
		default:
			err = bailey.Errorf(bailey.CodeNotAvailable, "mount "+string(f.Type), "use a secret, and HTTPS instead of SSH", "Bailey has no such mounts")
		}
		if err != nil {
			return err
		}
	}
	slices.SortStableFunc(m.list, func(a, b Mount) int { return strings.Compare(a.Target, b.Target) })
	return nil
}

func (m *mounts) make() error {
	for _, f := range m.late {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (m *mounts) cache(f *instructions.Mount) error {
	target, err := m.stage.mountTarget(f.Target)
	if err != nil {
		return err
	}
	if f.From != "" || f.Source != "" {
		return bailey.Errorf(bailey.CodeNotAvailable, "fill a cache from another stage", "leave from and source out", "caches begin empty")
	}
	id := f.CacheID
	if id == "" {
		id = target
	}
	sum := sha256.Sum256([]byte(m.stage.b.Owner + "\x00" + id))
	dir := filepath.Join(m.stage.b.Caches, hex.EncodeToString(sum[:16]))
	m.list = append(m.list, Mount{Kind: Folder, Target: target, Source: dir, IsDir: true, ReadOnly: f.ReadOnly})
	m.keys = append(m.keys, "cache", target, id, m.stage.b.Owner)
	m.late = append(m.late, func() error { return m.openCache(f, dir) })
	return nil
}

// openCache makes a cache's folder and waits for who has it for himself.
func (m *mounts) openCache(f *instructions.Mount, dir string) error {
	mode, owner := ownerOf(f, 0o755)
	switch err := os.Mkdir(dir, 0o700); {
	case os.IsExist(err):
	case err != nil:
		return storage(err)
	default:
		if err := give(dir, mode, owner); err != nil {
			return err
		}
	}
	how := unix.LOCK_EX
	if f.CacheSharing == instructions.MountSharingShared || f.CacheSharing == "" {
		how = unix.LOCK_SH
	}
	lock, err := os.OpenFile(dir+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return storage(err)
	}
	m.locks = append(m.locks, lock)
	got := make(chan error, 1)
	go func() { got <- unix.Flock(int(lock.Fd()), how) }()
	select {
	case err = <-got:
		if err != nil {
			return storage(err)
		}
		return nil
	case <-m.ctx.Done():
		m.locks = m.locks[:len(m.locks)-1]
		go func() { <-got; lock.Close() }() // the wait cannot be broken off
		return m.ctx.Err()
	}
}

// give sets mode and owner of a folder that a step uses, whose ids are those of
// the layers.
func give(dir string, mode uint64, owner User) error {
	if os.Geteuid() == 0 {
		if err := os.Lchown(dir, owner.UID, owner.GID); err != nil {
			return storage(err)
		}
	}
	if err := os.Chmod(dir, modeOf(mode)); err != nil {
		return storage(err)
	}
	return nil
}

func ownerOf(f *instructions.Mount, mode uint64) (uint64, User) {
	var u User
	if f.Mode != nil {
		mode = *f.Mode
	}
	if f.UID != nil && *f.UID <= maxID {
		u.UID = int(*f.UID)
	}
	if f.GID != nil && *f.GID <= maxID {
		u.GID = int(*f.GID)
	}
	return mode, u
}

func (m *mounts) secret(f *instructions.Mount) error {
	id := f.CacheID
	if id == "" {
		id = f.Source
	}
	if id == "" {
		id = path.Base(f.Target)
	}
	name, ok := m.stage.b.secretOf(id)
	if !ok {
		if f.Required {
			return bailey.Errorf(bailey.CodeUsage, "mount the secret "+strconv.Quote(id), "give it to the build: NAME@HOST", "the build has no such secret")
		}
		return nil
	}
	mode, owner := ownerOf(f, 0o400)
	x := Mount{Kind: Secret, Source: name, Mode: modeOf(mode), Owner: owner, Target: f.Target}
	if f.Env != nil {
		if x.Env = *f.Env; x.Env == "" {
			x.Env = id
		}
	}
	if x.Target == "" && x.Env == "" {
		x.Target = "/run/secrets/" + path.Base(id)
	}
	if x.Target != "" {
		var err error
		if x.Target, err = m.stage.mountTarget(x.Target); err != nil {
			return err
		}
	}
	m.list = append(m.list, x)
	m.keys = append(m.keys, "secret", id, x.Target, x.Env)
	return nil
}

// secretOf finds a secret of the build by its name; the spec has NAME@HOST.
func (b *builder) secretOf(id string) (string, bool) {
	for _, s := range b.Spec.Secrets {
		if name, _, _ := strings.Cut(s, "@"); name == id {
			return name, true
		}
	}
	return "", false
}

// scratch makes an empty folder for the build.
func (b *builder) scratch(kind string) (string, error) {
	b.added++
	dir := filepath.Join(b.Work, kind+"-"+strconv.Itoa(b.added))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", storage(err)
	}
	return dir, nil
}

func (m *mounts) tmpfs(f *instructions.Mount) error {
	target, err := m.stage.mountTarget(f.Target)
	if err != nil {
		return err
	}
	dir, err := m.stage.b.scratch("tmpfs")
	if err != nil {
		return err
	}
	if err := give(dir, 0o1777, User{}); err != nil {
		return err
	}
	m.list = append(m.list, Mount{Kind: Folder, Target: target, Source: dir, IsDir: true})
	m.keys = append(m.keys, "tmpfs", target)
	return nil
}

// bind shows something of the context, another stage or an image: a copy, so that
// what is written to it is gone with the step.
func (m *mounts) bind(f *instructions.Mount) error {
	target, err := m.stage.mountTarget(f.Target)
	if err != nil {
		return err
	}
	from, err := m.stage.source(m.ctx, f.From)
	if err != nil {
		return err
	}
	real, err := from.Resolve("/" + f.Source)
	if err != nil {
		return err
	}
	e, err := from.Lstat(real)
	if err != nil {
		return fmt.Errorf("a mount shows %q, which is not there", f.Source)
	}
	t := newTree(view.New(nil, m.stage.b.Store.IDs()))
	c := &copier{tree: t, from: from, keep: true}
	if err := c.take(e, "/it"); err != nil {
		return err
	}
	content, err := t.digest()
	if err != nil {
		return err
	}
	dir, err := m.stage.b.scratch("bind")
	if err != nil {
		return err
	}
	m.list = append(m.list, Mount{Kind: Folder, Target: target, Source: filepath.Join(dir, "fs/it"), IsDir: e.Mode.IsDir(), ReadOnly: f.ReadOnly})
	m.keys = append(m.keys, "bind", target, content, fmt.Sprint(f.ReadOnly))
	m.late = append(m.late, func() error {
		return piped(t.writeTo, func(r io.Reader) error { return m.stage.b.Hands.Unpack(m.ctx, r, dir) })
	})
	return nil
}
