package unpack_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
	"golang.org/x/sys/unix"
)

// model is a second, naive notion of what a layer means: a map from names to
// nodes, with every rule of the format applied one entry at a time. It knows
// nothing of links among parents; the generator makes none.
type model struct {
	nodes     map[string]*node
	whiteouts map[string]bool
	opaque    map[string]bool
}

type node struct {
	kind     string
	mode     uint32
	uid, gid int
	mtime    int64
	text     string // content or target
	attr     string // value of user.test
	implied  bool
}

func (m *model) parent(name string) bool {
	d := path.Dir(name)
	if d == "." {
		return true
	}
	n, ok := m.nodes[d]
	if ok {
		return n.kind == "dir"
	}
	if !m.parent(d) {
		return false
	}
	m.nodes[d] = &node{kind: "dir", mode: 0o755, implied: true}
	return true
}

func (m *model) drop(name string) {
	for k := range m.whiteouts {
		if strings.HasPrefix(k, name+"/") {
			delete(m.whiteouts, k)
		}
	}
	for k := range m.opaque {
		if k == name || strings.HasPrefix(k, name+"/") {
			delete(m.opaque, k)
		}
	}
	for k := range m.nodes {
		if k == name || strings.HasPrefix(k, name+"/") {
			delete(m.nodes, k)
		}
	}
}

// apply reports false for an entry that a layer of this test must not have.
func (m *model) apply(i item) bool {
	name := path.Clean(i.Name)
	dir, base := path.Split(name)
	dir = path.Clean(dir + ".")
	if to := m.nodes[path.Clean(i.Linkname)]; i.Typeflag == tar.TypeLink &&
		(to == nil || to.kind == "dir" || strings.HasPrefix(path.Clean(i.Linkname), name+"/")) {
		return false
	}
	if !m.parent(name) {
		return false
	}
	if base == ".wh..wh..opq" {
		m.opaque[dir] = true
		return true
	}
	if rest, ok := strings.CutPrefix(base, ".wh."); ok {
		m.whiteouts[path.Join(dir, rest)] = true
		return true
	}
	n := &node{mode: uint32(i.Mode), uid: i.Uid, gid: i.Gid, mtime: i.ModTime.Unix(), attr: i.PAXRecords["SCHILY.xattr.user.test"]}
	old := m.nodes[name]
	switch i.Typeflag {
	case tar.TypeDir:
		n.kind = "dir"
		if old != nil && old.kind == "dir" {
			*old = *n
			return true
		}
	case tar.TypeReg:
		n.kind, n.text = "file", i.body
	case tar.TypeSymlink:
		n.kind, n.text, n.mode, n.attr = "link", i.Linkname, 0o777, ""
	case tar.TypeFifo:
		n.kind, n.attr = "pipe", ""
	case tar.TypeLink:
		to := path.Clean(i.Linkname)
		if n = m.nodes[to]; to == name {
			return true
		}
	}
	m.drop(name)
	m.nodes[name] = n
	return true
}

// lines describes the tree that the layer should give.
func (m *model) lines() []string {
	var out []string
	names := map[*node][]string{}
	for name, n := range m.nodes {
		names[n] = append(names[n], name)
	}
	opaque := func(name string) bool {
		n := m.nodes[name]
		return m.opaque[name] || n != nil && n.kind == "dir" && m.whiteouts[name] && !m.opaque[path.Dir(name)]
	}
	for name, n := range m.nodes {
		same := names[n]
		sort.Strings(same)
		out = append(out, describe(name, n, opaque(name), same[0]))
	}
	for name := range m.whiteouts {
		if m.nodes[name] == nil && !opaque(path.Dir(name)) {
			out = append(out, "whiteout "+name)
		}
	}
	sort.Strings(out)
	return out
}

func describe(name string, n *node, opaque bool, firstName string) string {
	uid, gid := n.uid, n.gid
	if ids() == rootfs.IDsSingle {
		uid, gid = os.Geteuid(), os.Getegid()
	}
	if n.kind == "dir" {
		firstName = name
	}
	return fmt.Sprintf("%s %q %o %d:%d @%d %x attr=%q opaque=%v same=%q", n.kind, name, n.mode, uid, gid, n.mtime, sha256.Sum256([]byte(n.text)), n.attr, opaque, firstName)
}

// onDisk describes the tree that is there, in the same words.
func onDisk(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	first := firstNames(root)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		if name == "." {
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		n := &node{mode: st.Mode & 0o7777, uid: int(st.Uid), gid: int(st.Gid), mtime: st.Mtim.Sec}
		get := func(key string) string {
			b := make([]byte, 100)
			if k, err := unix.Lgetxattr(p, key, b); err == nil {
				return string(b[:k])
			}
			return ""
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			n.kind, n.attr = "dir", get("user.test")
		case unix.S_IFREG:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			n.kind, n.text, n.attr = "file", string(b), get("user.test")
		case unix.S_IFLNK:
			n.kind = "link"
			n.text, _ = os.Readlink(p)
		case unix.S_IFIFO:
			n.kind = "pipe"
		case unix.S_IFCHR:
			if st.Rdev != 0 {
				t.Errorf("%s is a device", p)
			}
			out = append(out, "whiteout "+name)
			return nil
		}
		out = append(out, describe(name, n, get(opaqueName()) == "y", first[st.Ino]))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(out)
	return out
}

// firstNames gives the first name of each inode, in plain string order.
func firstNames(root string) map[uint64]string {
	first := map[uint64]string{}
	_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(p, &st) == nil {
			name, _ := filepath.Rel(root, p)
			if old, ok := first[st.Ino]; !ok || name < old {
				first[st.Ino] = name
			}
		}
		return nil // what is unreadable fails the walk that compares
	})
	return first
}

func randomLayer(r *rand.Rand, m *model) []item {
	name := func() string {
		var p []string
		for range 1 + r.IntN(3) {
			p = append(p, string("abcd"[r.IntN(4)]))
		}
		return strings.Join(p, "/")
	}
	var items []item
	for len(items) < 40 {
		i := item{Header: tar.Header{
			Name: name(), Mode: []int64{0o644, 0o755, 0o700, 0o4755, 0o2755, 0o1777}[r.IntN(6)],
			Uid: r.IntN(3) * 1000, Gid: r.IntN(3) * 50, ModTime: time.Unix(int64(r.IntN(2_000_000_000)), 0), Format: tar.FormatPAX,
		}}
		if r.IntN(6) == 0 {
			i.PAXRecords = map[string]string{"SCHILY.xattr.user.test": fmt.Sprint(r.IntN(9))}
		}
		switch r.IntN(12) {
		case 0, 1, 2:
			i.Typeflag, i.Mode = tar.TypeDir, i.Mode|0o700 // for the test to look in as an ordinary user
		case 3, 4, 5:
			i.Typeflag, i.body = tar.TypeReg, strings.Repeat(fmt.Sprint(r.IntN(10)), r.IntN(3000))
		case 6:
			i.Typeflag, i.body = tar.TypeReg, strings.Repeat("\x00", r.IntN(400_000))+"end"[:r.IntN(4)]
		case 7:
			i.Typeflag, i.Linkname = tar.TypeSymlink, "/"+name()
		case 8:
			i.Typeflag, i.Linkname = tar.TypeLink, name()
			i.PAXRecords = nil
		case 9:
			i.Typeflag = tar.TypeFifo
		case 10:
			i.Typeflag, i.Name = tar.TypeReg, path.Join(path.Dir(i.Name), ".wh."+path.Base(i.Name))
		case 11:
			i.Typeflag, i.Name = tar.TypeReg, path.Join(path.Dir(i.Name), ".wh..wh..opq")
		}
		if m.apply(i) {
			items = append(items, i)
		}
	}
	return items
}

func TestTreesAreWhatTheFormatSays(t *testing.T) {
	for seed := range uint64(60) {
		m := &model{nodes: map[string]*node{}, whiteouts: map[string]bool{}, opaque: map[string]bool{}}
		items := randomLayer(rand.New(rand.NewPCG(seed, 1)), m)
		layer := pack(t, items...)
		r, root, err := unpackInto(t, t.TempDir(), layer, unpack.DefaultLimits)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if want := fmt.Sprintf("%x", sha256.Sum256(layer)); r.DiffID != want {
			t.Errorf("seed %d: digest %s, want %s", seed, r.DiffID, want)
		}
		if got, want := onDisk(t, root), m.lines(); !reflect.DeepEqual(got, want) {
			var b strings.Builder
			for _, i := range items {
				fmt.Fprintf(&b, "%c %s -> %s\n", i.Typeflag, i.Name, i.Linkname)
			}
			t.Fatalf("seed %d:\n got %s\nwant %s\nfrom\n%s", seed, strings.Join(got, "\n     "), strings.Join(want, "\n     "), &b)
		}
		var implied []string
		for name, n := range m.nodes {
			if n.implied {
				implied = append(implied, name)
			}
		}
		sort.Strings(implied)
		if strings.Join(r.Implied, " ") != strings.Join(implied, " ") {
			t.Errorf("seed %d: implied %q, want %q", seed, r.Implied, implied)
		}
	}
}

func TestLinksAmongParentsLeadInsideTheRoot(t *testing.T) {
	_, root, err := unpackInto(t, t.TempDir(), pack(t,
		dir("usr/lib", 0o755), link("lib", "usr/lib"), link("abs", "/usr/lib"), link("up", "../../usr"),
		file("lib/a", "1"), file("abs/b", "2"), file("up/lib/c", "3"), dir("lib/d", 0o700), file("lib/.wh.gone", ""), hard("e", "abs/a"),
	), unpack.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"usr/lib/a": "1", "usr/lib/b": "2", "usr/lib/c": "3", "e": "1"} {
		wantContent(t, filepath.Join(root, name), want)
	}
	wantType(t, filepath.Join(root, "usr/lib/gone"), unix.S_IFCHR)
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(root, "usr/lib/d"), &st); err != nil || st.Mode&0o7777 != 0o700 {
		t.Errorf("mode %o (%v), want 700", st.Mode&0o7777, err)
	}
}

func TestHolesStayHoles(t *testing.T) {
	_, root, err := unpackInto(t, t.TempDir(), pack(t, file("f", strings.Repeat("\x00", 16<<20)+"x")), unpack.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(root, "f"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != 16<<20+1 || st.Blocks*512 > 1<<20 {
		t.Errorf("size %d with %d bytes on disk, want %d with less than a MiB", st.Size, st.Blocks*512, 16<<20+1)
	}
}

func TestACancelledUnpackStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	d, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s, err := unpack.NewStream(ctx, bytes.NewReader(pack(t, file("f", "x"))), unpack.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := unpack.Layer(s, d, unpack.Options{IDs: ids(), Limits: unpack.DefaultLimits}); err != context.Canceled {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

// FuzzLayer feeds streams that nobody made on purpose: whatever they are, they
// stay inside, and what is wrong with them is said to be the layer's fault.
func FuzzLayer(f *testing.F) {
	f.Add([]byte{})
	for _, a := range attacks {
		if a.items != nil {
			f.Add(pack(f, a.items("/outside")...))
		}
	}
	f.Add(gz(f, pack(f, dir("a", 0o755), file("a/b", "x"), hard("c", "a/b"), link("d", "a"), file("d/.wh.e", ""))))
	f.Fuzz(func(t *testing.T, layer []byte) {
		base := t.TempDir()
		if err := os.Mkdir(filepath.Join(base, "outside"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, "outside/canary"), []byte("alive"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := snapshot(t, base, "")
		limits := unpack.Limits{Entries: 200, Bytes: 1 << 20, Names: 64 << 10, Path: 1000, Depth: 30, Ratio: 500, RatioFrom: 512 << 10}
		_, root, err := unpackInto(t, base, layer, limits)
		if code := bailey.CodeOf(err); err != nil && code != bailey.CodeImageInvalid {
			t.Errorf("code %s: %v", code, err)
		}
		if after := snapshot(t, base, root); after != before {
			t.Errorf("the outside has changed:\n%s\nwas\n%s", after, before)
		}
		d, err := os.Open(base)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := unpack.RemoveAll(d, "root"); err != nil {
			t.Errorf("what was unpacked cannot be removed: %v", err)
		}
	})
}
