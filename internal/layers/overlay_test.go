package layers

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/bailey-sandbox/bailey/api"
)

var long = flag.Duration("layers.long", 0, "how long the property test of layers goes on, beyond its few checks")

// TestSameAsAPlainFolder does random things in an overlay mounted over layers, as
// sandboxes have it, and in a plain folder, the model. Each state that was sealed,
// captured, flattened, exported and imported must show what the model showed then.
func TestSameAsAPlainFolder(t *testing.T) {
	if !inNamespaces(t) {
		return
	}
	must(t, flag.Set("rapid.checks", "8"))
	until := time.Now().Add(*long)
	for first := true; first || time.Now().Before(until); first = false {
		rapid.Check(t, func(r *rapid.T) { plainFolder(t, r) })
	}
}

// saved is a state that was kept, and what the model showed.
type saved struct {
	id   string
	want listing
}

type stay struct {
	t      *testing.T
	r      *rapid.T
	s      *Store
	dir    string
	ground string
	model  string
	merged string
	layer  string // upper and work
	head   string // the chain
	saved  []saved
	n      int
	second int64
	hard   map[string]bool // names of files that have several
}

func plainFolder(t *testing.T, r *rapid.T) {
	dir := tempDir(t)
	st := &stay{t: t, r: r, s: open(t, dir), dir: dir, ground: dir + "/ground", model: dir + "/model", hard: map[string]bool{}}
	for _, base := range []string{st.ground, st.model} {
		must(t, os.MkdirAll(base+"/a/b", 0o755))
		must(t, os.MkdirAll(base+"/c", 0o750))
		must(t, os.WriteFile(base+"/a/f", []byte("ground"), 0o644))
		must(t, os.WriteFile(base+"/a/b/g", []byte("ground too"), 0o600))
		must(t, os.Symlink("a/f", base+"/l"))
		for _, p := range []string{"/a/f", "/a/b/g"} {
			must(t, os.Chtimes(base+p, time.Unix(1, 0), time.Unix(1, 0)))
		}
	}
	st.mount()
	steps := rapid.IntRange(10, 60).Draw(r, "steps")
	for range steps {
		switch rapid.IntRange(0, 14).Draw(r, "what") {
		case 0:
			st.seal()
		case 1:
			st.capture()
		case 2:
			st.flatten()
		default:
			st.act()
		}
	}
	st.seal()
	unmount(t, st.merged)
	st.check()
}

func (st *stay) lower() []string {
	dirs, err := st.s.Dirs(st.head)
	must(st.t, err)
	return append([]string{st.ground}, dirs...)
}

func (st *stay) mount() {
	st.n++
	st.layer = fmt.Sprintf("%s/top%d", st.dir, st.n)
	st.merged = mounted(st.t, st.lower(), st.layer)
}

func (st *stay) id() string {
	st.n++
	return fmt.Sprintf("l%d", st.n)
}

func (st *stay) seal() {
	unmount(st.t, st.merged)
	id := st.id()
	_, err := st.s.Seal(ctx, id, st.head, st.layer+"/upper", IDs{})
	must(st.t, err)
	st.head = id
	st.saved = append(st.saved, saved{id, list(st.t, st.model)})
	st.mount()
}

func (st *stay) capture() {
	id := st.id()
	_, err := st.s.Capture(ctx, id, st.head, st.layer+"/upper", IDs{})
	must(st.t, err)
	st.saved = append(st.saved, saved{id, list(st.t, st.model)})
}

func (st *stay) flatten() {
	if st.head == "" || st.s.FlatOf(st.head) != "" {
		return
	}
	id := st.id()
	_, err := st.s.Flatten(ctx, st.head, id)
	must(st.t, err)
	if st.s.FlatOf(st.head) != id {
		st.t.Fatal("the flat layer is not known as one")
	}
	// What was sealed last is what it shows: go on over it at the next mount.
	unmount(st.t, st.merged)
	st.head = id
	st.merged = mounted(st.t, st.lower(), st.layer)
}

// act does one thing to both.
func (st *stay) act() {
	names := []string{"a", "b", "c", "f", "g", "l", ".wh.f", "\xff"}
	// What is there, or could be made: names drawn blindly would hit nothing.
	var known, folders []string
	for q, line := range list(st.t, st.model) {
		if q != "." {
			known = append(known, q)
		}
		if isFolder(line) {
			folders = append(folders, q)
		}
	}
	sort.Strings(known)
	sort.Strings(folders)
	draw := func(what string) string {
		if len(known) > 0 && rapid.Bool().Draw(st.r, what+" is there") {
			return rapid.SampledFrom(known).Draw(st.r, what)
		}
		return path.Join(rapid.SampledFrom(folders).Draw(st.r, what+" in"), rapid.SampledFrom(names).Draw(st.r, what))
	}
	p := draw("path")
	text := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(st.r, "text")
	what := rapid.SampledFrom([]string{"write", "append", "mkdir", "mkdir", "removeall", "remove", "removeall", "rename", "symlink", "chmod", "link", "xattr", "pipe"}).Draw(st.r, "act")
	to := draw("to")
	mode := os.FileMode(rapid.SampledFrom([]uint32{0o644, 0o600, 0o755, 0o700, 0o444}).Draw(st.r, "mode"))
	if st.hard[p] && what != "remove" {
		return // overlayfs without an index takes names of one file apart when it is written to
	}
	st.second++
	at := time.Unix(st.second, 5)
	do := func(base string) error {
		q, q2 := base+"/"+p, base+"/"+to
		if plainly(base, path.Dir(p)) != nil || plainly(base, path.Dir(to)) != nil {
			return errors.New("a link is on the way")
		}
		var kind unix.Stat_t
		is := unix.Lstat(q, &kind)
		file := is == nil && kind.Mode&unix.S_IFMT == unix.S_IFREG
		switch what {
		case "write":
			if is == nil && !file {
				return errors.New("no file")
			}
			if err := os.WriteFile(q, text, 0o644); err != nil {
				return err
			}
			return os.Chtimes(q, at, at)
		case "append":
			if !file {
				return errors.New("no file")
			}
			f, err := os.OpenFile(q, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			f.Write(text)
			f.Close()
			return os.Chtimes(q, at, at)
		case "mkdir":
			return os.Mkdir(q, 0o755)
		case "remove":
			return os.Remove(q)
		case "removeall":
			if is != nil {
				return is
			}
			return os.RemoveAll(q)
		case "rename":
			return os.Rename(q, q2)
		case "symlink":
			return os.Symlink(to, q)
		case "chmod":
			if is != nil || kind.Mode&unix.S_IFMT == unix.S_IFLNK {
				return errors.New("no")
			}
			return os.Chmod(q, mode)
		case "link":
			if !file {
				return errors.New("no file")
			}
			return os.Link(q, q2)
		case "xattr":
			if !file {
				return errors.New("no file")
			}
			return unix.Lsetxattr(q, "user.test", []byte(what), 0)
		case "pipe":
			return unix.Mkfifo(q, 0o600)
		}
		return nil
	}
	err := do(st.merged)
	if errors.Is(err, unix.EXDEV) {
		return // a folder that lies below is renamed by copying, or not at all
	}
	merr := do(st.model)
	if (err == nil) != (merr == nil) {
		st.t.Fatalf("%s %q %q: the overlay says %v, a plain folder %v", what, p, to, err, merr)
	}
	if err == nil && what == "link" && p != to {
		st.hard[p], st.hard[to] = true, true
	}
}

// plainly says whether a folder is reached without passing a link.
func plainly(base, rel string) error {
	at := base
	for _, part := range strings.Split(rel, "/") {
		at = filepath.Join(at, part)
		fi, err := os.Lstat(at)
		if err != nil {
			return err
		}
		if fi.Mode()&os.ModeSymlink != 0 {
			return errors.New("a link")
		}
	}
	return nil
}

// check looks at every state that was saved, after everything that came later.
func (st *stay) check() {
	t := st.t
	home := tempDir(t)
	other := open(t, home)
	st.s = open(t, st.dir)
	for _, sv := range st.saved {
		dirs, err := st.s.Dirs(sv.id)
		must(t, err)
		st.shows("sealed or captured", append([]string{st.ground}, dirs...), sv.want)
		chain, err := st.s.Chain(sv.id)
		must(t, err)
		for _, l := range chain {
			h := hashed(t, st.s, l.ID)
			if got, err := other.Get(l.ID); err == nil {
				if got.Hash != h {
					t.Fatalf("%s: the hash was %s and is %s", l.ID, h, got.Hash)
				}
				continue
			}
			var tar bytes.Buffer
			must(t, st.s.WriteTar(ctx, l.ID, &tar))
			if _, err := other.ReadTar(ctx, l.ID, l.Parent, &tar, IDs{}); err != nil {
				t.Fatal(err)
			}
			if got := hashed(t, other, l.ID); got != h {
				t.Fatalf("%s: exported it has the hash %s, imported %s", l.ID, h, got)
			}
		}
		dirs, err = other.Dirs(sv.id)
		must(t, err)
		st.shows("imported", append([]string{st.ground}, dirs...), sv.want)
		flat := "flat-" + sv.id
		_, err = other.Flatten(ctx, sv.id, flat)
		must(t, err)
		l, err := other.Get(flat)
		must(t, err)
		st.shows("flattened", []string{st.ground, l.Dir}, sv.want)
		if ok, err := other.Verify(ctx, sv.id, true); !ok || err != nil {
			t.Fatalf("verified: %v %v", ok, err)
		}
	}
	for i := 1; i < len(st.saved); i++ {
		st.compares(st.saved[i-1], st.saved[i])
	}
	for _, id := range st.s.Unused(nil) {
		must(t, st.s.Remove(ctx, id))
	}
}

func (st *stay) shows(what string, lower []string, want listing) {
	st.t.Helper()
	m := mounted(st.t, lower, "")
	got := list(st.t, m)
	unmount(st.t, m)
	if d := want.diff(got); d != "" {
		st.t.Fatalf("%s, it shows something else than the model:\n%s", what, d)
	}
}

// compares holds Diff against the two listings.
func (st *stay) compares(a, b saved) {
	var got, want []string
	each := func(c api.Change) error {
		got = append(got, c.Op+" "+c.Path)
		return nil
	}
	ground := []string{st.ground}
	must(st.t, st.s.Diff(ctx, State{Ground: ground, Layer: a.id}, State{Ground: ground, Layer: b.id}, each))
	for p, x := range a.want {
		y, ok := b.want[p]
		switch {
		case p == ".":
		case !ok:
			want = append(want, "deleted "+p)
		case isFolder(x) != isFolder(y):
			want = append(want, "deleted "+p, "added "+p)
		case content(x) != content(y):
			want = append(want, "changed "+p)
		case withoutTime(x) != withoutTime(y):
			want = append(want, "mode "+p)
		}
	}
	for p := range b.want {
		if _, ok := a.want[p]; !ok {
			want = append(want, "added "+p)
		}
	}
	sort.Strings(got)
	sort.Strings(want)
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		st.t.Fatalf("Diff of %s and %s says\n%s\nand the listings\n%s", a.id, b.id, g, w)
	}
}

// The parts of a line of a listing.
func isFolder(line string) bool {
	return strings.HasPrefix(line, "4") && len(strings.Fields(line)[0]) == 5
}

func content(line string) string {
	f := strings.Fields(line)
	kind := f[0][:len(f[0])-4]
	if len(f) > 3 && f[2] == "->" {
		return kind + f[3]
	}
	if len(f) > 3 && strings.HasPrefix(kind, "10") {
		return kind + f[3]
	}
	return kind
}

func withoutTime(line string) string {
	f := strings.Fields(line)
	if len(f) > 3 && f[2] != "->" {
		f = append(f[:2:2], f[3:]...)
	}
	return strings.Join(f, " ")
}
