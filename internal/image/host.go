package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/mountinfo"
	"golang.org/x/sys/unix"
)

// host is where the built-in template finds the host.
type host struct {
	root      string // "/" but in tests
	mountinfo string
}

func thisHost() host { return host{"/", "/proc/self/mountinfo"} }

// taken is one thing of the host that the skeleton gets.
type taken struct {
	name    string // relative to the root
	st      unix.Stat_t
	guarded bool
}

// hostPlan is what the template will be, found out without reading a file.
type hostPlan struct {
	taken []taken
	links map[string]string
	binds []rootfs.Bind
	notes []string
	key   string // changes with anything that goes into the template
}

// Bounds of the skeleton: it is copied, so it must stay small.
const (
	maxTaken     = 50_000
	maxTakenFile = 4 << 20
	maxSkeleton  = 64 << 20
)

// hostTemplate prepares the built-in template: a small layer of its own with
// /etc, accounts and empty folders, and the host's /usr seen through it. The
// layer is made once and again when the host changes.
func (s *Store) hostTemplate(ctx context.Context) (rootfs.Root, error) {
	plan, err := s.planHost()
	if err != nil {
		return rootfs.Root{}, err
	}
	var cached sourceRecord
	if s.readJSON("sources", plan.key, &cached) {
		if r, ok := s.known(cached.Image); ok {
			return s.root(r, HostSource, true), nil
		}
	}
	skeleton, notes, err := s.skeleton(plan)
	if err != nil {
		return rootfs.Root{}, err
	}
	binds, err := json.Marshal(plan.binds)
	if err != nil {
		return rootfs.Root{}, err
	}
	layer := sha256.Sum256(skeleton)
	whole := sha256.Sum256(append(layer[:], binds...))
	rec := imageRecord{
		Kind: rootfs.KindHost, Digest: hex.EncodeToString(whole[:]), Binds: plan.binds, Notes: append(plan.notes, notes...),
		Config: rootfs.Config{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, Workdir: "/"},
	}
	rec, err = s.assemble(ctx, rec, []part{{hex.EncodeToString(layer[:]), func() (input, error) {
		return input{Reader: bytes.NewReader(skeleton), close: func() {}}, nil
	}}})
	if err != nil {
		return rootfs.Root{}, err
	}
	// Only if nothing changed while it was read: a package manager may be at work.
	if again, err := s.planHost(); err == nil && again.key == plan.key {
		if err := s.writeJSON("sources", plan.key, sourceRecord{Image: rec.Digest}); err != nil {
			return rootfs.Root{}, storage("remember the template", err)
		}
	}
	return s.root(rec, HostSource, false), nil
}

func hostUnreadable(err error) error {
	return bailey.Errorf(bailey.CodeNotAvailable, "make the built-in template", "use an image or a folder as the root file system", "the host cannot be read: %w", err)
}

// planHost finds out what the template consists of. Everything that could make
// it another one goes into the key.
func (s *Store) planHost() (hostPlan, error) {
	p := hostPlan{links: map[string]string{}}
	for name, target := range skeletonLinks {
		p.links[name] = target
	}
	if err := s.planTop(&p); err != nil {
		return p, err
	}
	if err := s.planEtc(&p); err != nil {
		return p, err
	}
	h := sha256.New()
	enc := json.NewEncoder(h)
	if err := enc.Encode([]any{"host", templateVersion, layerVersion, s.ids, p.links, p.binds}); err != nil {
		return p, err
	}
	for _, t := range p.taken {
		fmt.Fprintf(h, "%q %o %d %d %d.%d %d.%d\n", t.name, t.st.Mode, t.st.Ino, t.st.Size, t.st.Mtim.Sec, t.st.Mtim.Nsec, t.st.Ctim.Sec, t.st.Ctim.Nsec)
	}
	for _, name := range []string{"etc/passwd", "etc/group"} {
		b, err := os.ReadFile(filepath.Join(s.host.root, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p, hostUnreadable(err)
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(b), b)
	}
	p.key = hex.EncodeToString(h.Sum(nil))
	return p, nil
}

// planTop decides for each folder at the top whether it is shown or a link.
func (s *Store) planTop(p *hostPlan) error {
	bind := func(name string) {
		p.binds = append(p.binds, rootfs.Bind{Source: filepath.Join(s.host.root, name), Target: "/" + name})
	}
	for _, name := range append(slices.Clone(hostTop), hostDatabases...) {
		full := filepath.Join(s.host.root, name)
		st, err := os.Lstat(full)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return hostUnreadable(err)
		}
		switch {
		case st.Mode()&fs.ModeSymlink != 0 && !strings.Contains(name, "/"):
			target, err := os.Readlink(full)
			if err != nil {
				return hostUnreadable(err)
			}
			p.links[name] = target
		case st.IsDir() && st.Mode()&0o005 == 0o005:
			bind(name)
		}
	}
	if st, err := os.Stat(filepath.Join(s.host.root, "usr/bin")); err != nil || !st.IsDir() {
		return bailey.Errorf(bailey.CodeNotAvailable, "make the built-in template", "use an image or a folder as the root file system", "this host has no /usr/bin")
	}
	for _, b := range p.binds {
		if within(s.dir, b.Source) {
			return bailey.Errorf(bailey.CodeStorage, "make the built-in template", "move Bailey's data folder elsewhere", "it lies in %s, which the template shows", b.Source)
		}
	}
	return s.planMounts(p)
}

// planMounts adds what is mounted below the folders shown: an overlay's lower
// layer ends at a mount, and part of the view would be missing.
func (s *Store) planMounts(p *hostPlan) error {
	raw, err := os.ReadFile(s.host.mountinfo)
	if err != nil {
		return hostUnreadable(err)
	}
	points, err := mountPoints(raw)
	if err != nil {
		return hostUnreadable(err)
	}
	for _, at := range points {
		i := slices.IndexFunc(p.binds, func(b rootfs.Bind) bool { return at != b.Source && within(at, b.Source) })
		if i < 0 || slices.ContainsFunc(p.binds, func(b rootfs.Bind) bool { return b.Source == at }) {
			continue
		}
		target := p.binds[i].Target + strings.TrimPrefix(at, p.binds[i].Source)
		st, err := os.Lstat(at)
		switch {
		case err != nil || st.Mode()&0o005 != 0o005 && st.IsDir():
			p.notes = append(p.notes, "left out "+cleanText(target)+", a mount of the host that not everybody may read")
		case st.IsDir():
			p.binds = append(p.binds, rootfs.Bind{Source: at, Target: target})
		default:
			p.notes = append(p.notes, "left out "+cleanText(target)+", a file that is mounted there on the host")
		}
	}
	slices.SortStableFunc(p.binds, func(a, b rootfs.Bind) int { return strings.Compare(a.Target, b.Target) })
	return nil
}

// mountPoints gives where something is mounted, parents first.
func mountPoints(text []byte) ([]string, error) {
	mounts, err := mountinfo.Parse(text)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range mounts {
		if path.Clean(m.Point) == m.Point {
			out = append(out, m.Point)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// planEtc finds what of the named subset exists and everybody may read.
func (s *Store) planEtc(p *hostPlan) error {
	etc := filepath.Join(s.host.root, "etc")
	for i, list := range [][]string{hostEtc, hostEtcGuarded} {
		for _, pattern := range list {
			matches := []string{filepath.Join(etc, pattern)}
			if strings.Contains(pattern, "*") {
				var err error
				if matches, err = filepath.Glob(matches[0]); err != nil {
					return err
				}
			}
			for _, m := range matches {
				if err := p.take(s.host.root, m, i == 1); err != nil {
					return err
				}
			}
		}
	}
	slices.SortFunc(p.taken, func(a, b taken) int { return strings.Compare(a.name, b.name) })
	return nil
}

// take adds what is at full, if everybody may get there.
func (p *hostPlan) take(root, full string, guarded bool) error {
	name, err := filepath.Rel(root, full)
	if err != nil {
		return err
	}
	for dir := path.Dir(name); dir != "." && dir != "etc"; dir = path.Dir(dir) {
		st, err := os.Lstat(filepath.Join(root, dir))
		if err != nil || !st.IsDir() || st.Mode()&0o001 == 0 {
			return nil
		}
	}
	return p.walk(full, name, guarded)
}

// walk adds full and, if it is a folder, what is in it.
func (p *hostPlan) walk(full, name string, guarded bool) error {
	t := taken{name: name, guarded: guarded}
	switch err := unix.Lstat(full, &t.st); err {
	case nil:
	case unix.ENOENT, unix.EACCES:
		return nil
	default:
		return hostUnreadable(&os.PathError{Op: "lstat", Path: full, Err: err})
	}
	switch t.st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
	case unix.S_IFREG:
		if t.st.Mode&0o004 == 0 {
			return nil
		}
	case unix.S_IFDIR:
		if t.st.Mode&0o005 != 0o005 {
			return nil
		}
		list, err := os.ReadDir(full)
		if err != nil {
			return hostUnreadable(err)
		}
		for _, e := range list {
			if err := p.walk(full+"/"+e.Name(), name+"/"+e.Name(), guarded); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	if p.taken = append(p.taken, t); len(p.taken) > maxTaken {
		return bailey.Errorf(bailey.CodeNotAvailable, "make the built-in template", "use an image or a folder as the root file system", "the host's /etc has more than %d files of the kind that is copied", maxTaken)
	}
	return nil
}
