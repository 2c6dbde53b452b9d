package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sys/unix"
)

// mounted shows a prepared root as a driver would: the layers as overlayfs's
// lower ones, and the binds as overlays of their own on top.
func mounted(t *testing.T, r rootfs.Root) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounting an overlay")
	}
	work := t.TempDir()
	overlay := func(at string, lower ...string) {
		for _, d := range []string{"upper", "work"} {
			if err := os.MkdirAll(filepath.Join(work, d, at), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		set := func(key, value string) {
			if err := unix.FsconfigSetString(fd, key, value); err != nil {
				t.Fatalf("overlay option %s=%s: %v", key, value, err)
			}
		}
		for _, l := range slices.Backward(lower) {
			set("lowerdir+", l)
		}
		set("upperdir", filepath.Join(work, "upper", at))
		set("workdir", filepath.Join(work, "work", at))
		if err := unix.FsconfigCreate(fd); err != nil {
			t.Fatalf("overlay over %q: %v", lower, err)
		}
		m, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(m)
		target := filepath.Join(work, "root", at)
		if err := os.MkdirAll(target, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.MoveMount(m, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	overlay("", r.Layers...)
	for _, b := range r.Binds {
		overlay(b.Target, b.Source)
	}
	return filepath.Join(work, "root")
}

// treeOf describes a tree by what a program sees.
func treeOf(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		text := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text = hexSum(b)
		case unix.S_IFLNK:
			text, _ = os.Readlink(p)
		}
		if name != "." {
			out = append(out, fmt.Sprintf("%s %o %d:%d %d %s", name, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(out)
	return out
}

// flattened describes what go-containerregistry makes of an image: another
// program's notion of layers, whiteouts and opaque folders.
func flattened(t *testing.T, img v1.Image) []string {
	t.Helper()
	r := mutate.Extract(img)
	defer r.Close()
	tr := tar.NewReader(r)
	var out []string
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		kind, text := uint32(unix.S_IFREG), hexSum(b)
		switch h.Typeflag {
		case tar.TypeDir:
			kind, text = unix.S_IFDIR, ""
		case tar.TypeSymlink:
			kind, text = unix.S_IFLNK, h.Linkname
		}
		out = append(out, fmt.Sprintf("%s %o %d:%d %d %s", filepath.Clean(h.Name), kind|uint32(h.Mode), h.Uid, h.Gid, h.ModTime.Unix(), text))
	}
	sort.Strings(out)
	return out
}

// history makes layers as a builder does: each is the difference between two
// states of one tree.
type history struct {
	r    *rand.Rand
	tree map[string]*tar.Header // by clean name
}

func (h *history) next(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	wrote, gone := map[string]bool{}, map[string]bool{}
	put := func(hd *tar.Header, body string) {
		if err := w.WriteHeader(hd); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	var ensure func(dir string)
	ensure = func(dir string) {
		if dir == "." || wrote[dir] {
			return
		}
		ensure(filepath.Dir(dir))
		wrote[dir] = true
		hd, ok := h.tree[dir]
		if !ok || hd.Typeflag != tar.TypeDir {
			hd = h.header(dir, tar.TypeDir)
			h.tree[dir] = hd
		}
		put(hd, "")
	}
	for range 12 {
		var name []string
		for range 1 + h.r.IntN(3) {
			name = append(name, string("abcde"[h.r.IntN(5)]))
		}
		p := filepath.Join(name...)
		parentOK := true
		for d := filepath.Dir(p); d != "."; d = filepath.Dir(d) {
			if hd := h.tree[d]; hd != nil && hd.Typeflag != tar.TypeDir {
				parentOK = false
			}
			parentOK = parentOK && !gone[d]
		}
		if !parentOK || wrote[p] {
			continue
		}
		old := h.tree[p]
		touchedBelow := false
		for k := range wrote {
			touchedBelow = touchedBelow || strings.HasPrefix(k, p+"/")
		}
		switch h.r.IntN(4) {
		case 0: // remove what was there before this layer
			if old == nil || touchedBelow {
				continue
			}
			ensure(filepath.Dir(p))
			h.forget(p)
			put(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.Join(filepath.Dir(p), ".wh."+filepath.Base(p)), ModTime: time.Unix(1, 0)}, "")
			wrote[p], gone[p] = true, true
		case 1: // empty a folder
			if old == nil || old.Typeflag != tar.TypeDir || touchedBelow {
				continue
			}
			ensure(p)
			for k := range h.tree {
				if strings.HasPrefix(k, p+"/") {
					delete(h.tree, k)
				}
			}
			put(&tar.Header{Typeflag: tar.TypeReg, Name: p + "/.wh..wh..opq", ModTime: time.Unix(1, 0)}, "")
		default:
			kind := []byte{tar.TypeReg, tar.TypeSymlink}[h.r.IntN(2)]
			if old != nil && old.Typeflag == tar.TypeDir {
				continue
			}
			ensure(filepath.Dir(p))
			hd := h.header(p, kind)
			body := ""
			if kind == tar.TypeReg {
				body = strings.Repeat("x", h.r.IntN(100))
				hd.Size = int64(len(body))
			} else {
				hd.Linkname, hd.Mode = fmt.Sprint("/target", h.r.IntN(9)), 0o777
			}
			h.tree[p] = hd
			put(hd, body)
			wrote[p] = true
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (h *history) header(name string, kind byte) *tar.Header {
	hd := &tar.Header{Typeflag: kind, Name: name, Mode: []int64{0o755, 0o700, 0o4755}[h.r.IntN(3)], Uid: h.r.IntN(2) * 1000, Gid: h.r.IntN(2) * 50,
		ModTime: time.Unix(int64(h.r.IntN(1_000_000_000)), 0)}
	if kind == tar.TypeDir {
		hd.Name, hd.Mode = name+"/", hd.Mode&0o777
	}
	return hd
}

func (h *history) forget(p string) {
	for k := range h.tree {
		if k == p || strings.HasPrefix(k, p+"/") {
			delete(h.tree, k)
		}
	}
}

func TestOverlayfsShowsWhatTheImageMeans(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounting an overlay")
	}
	base := t.TempDir()
	for seed := range uint64(25) {
		h := &history{r: rand.New(rand.NewPCG(seed, 2)), tree: map[string]*tar.Header{}}
		var tars [][]byte
		for range 5 {
			tars = append(tars, h.next(t))
		}
		img := imageOf(t, tars...)
		s := openStore(t, filepath.Join(base, "store"))
		r := prepare(t, s, layoutOf(t, filepath.Join(base, fmt.Sprint(seed)), map[string]v1.Image{"": img}))
		if got, want := treeOf(t, mounted(t, r)), flattened(t, img); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d:\n got %s\nwant %s", seed, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
}

func TestFoldersThatALayerOnlyImplies(t *testing.T) {
	base := t.TempDir()
	s := openStore(t, filepath.Join(base, "store"))
	var low bytes.Buffer
	w := tar.NewWriter(&low)
	for name, mode := range map[string]int64{"tmp/": 0o1777, "srv/": 0o750, "srv/in/": 0o711, "gone/": 0o700, "hidden/": 0o700, "hidden/d/": 0o700} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: 33, Gid: 33, ModTime: time.Unix(77, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	img := imageOf(t, low.Bytes(),
		tarOf(t, entry{".wh.gone", ""}, entry{"hidden/.wh..wh..opq", ""}),
		tarOf(t, entry{"tmp/x", "1"}, entry{"srv/in/y", "2"}, entry{"gone/z", "3"}, entry{"hidden/d/v", "4"}, entry{"new/w", "5"}))
	src := layoutOf(t, filepath.Join(base, "layout"), map[string]v1.Image{"": img})
	r := prepare(t, s, src)
	if len(r.Layers) != 4 {
		t.Fatalf("%d layers, want the image's three and one that describes folders", len(r.Layers))
	}
	for name, mode := range map[string]uint32{"tmp": 0o1777, "srv": 0o750, "srv/in": 0o711} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(r.Layers[3], name), &st); err != nil || st.Mode&0o7777 != mode || st.Mtim.Sec != 77 || s.ids == rootfs.IDsHost && st.Uid != 33 {
			t.Errorf("%s: mode %o, owner %d, time %d (%v)", name, st.Mode&0o7777, st.Uid, st.Mtim.Sec, err)
		}
	}
	for _, name := range []string{"gone", "hidden", "new"} {
		if _, err := os.Lstat(filepath.Join(r.Layers[3], name)); !os.IsNotExist(err) {
			t.Errorf("%s is described though nothing shows through (%v)", name, err)
		}
	}
	if again := prepare(t, s, src); !again.Reused || !reflect.DeepEqual(again.Layers, r.Layers) {
		t.Errorf("again: %+v", again)
	}
}

func TestALayerThatHidesAllBelow(t *testing.T) {
	base := t.TempDir()
	s := openStore(t, filepath.Join(base, "store"))
	img := imageOf(t, tarOf(t, entry{"old", "1"}), tarOf(t, entry{".wh..wh..opq", ""}, entry{"new", "2"}), tarOf(t), tarOf(t, entry{"newer", "3"}))
	r := prepare(t, s, layoutOf(t, filepath.Join(base, "layout"), map[string]v1.Image{"": img}))
	all := layerDirs(t, s, img)
	if want := []string{all[1], all[3]}; !reflect.DeepEqual(r.Layers, want) {
		t.Errorf("layers %q, want %q", r.Layers, want)
	}
}

func TestOwnersAreRecordedWhereTheyAreNotStored(t *testing.T) {
	base := t.TempDir()
	s := openStore(t, filepath.Join(base, "store"))
	s.ids = rootfs.IDsSingle
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{{Typeflag: tar.TypeReg, Name: "root"}, {Typeflag: tar.TypeReg, Name: "a \"b\"\n", Uid: 33, Gid: 4}, {Typeflag: tar.TypeDir, Name: "d/", Gid: 7, Mode: 0o755}} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	r := prepare(t, s, writeFile(t, filepath.Join(base, "x.tar"), b.Bytes()))
	got, err := os.ReadFile(filepath.Join(filepath.Dir(r.Layers[0]), "owners"))
	if want := "33 4 \"a \\\"b\\\"\\n\"\n0 7 \"d\"\n"; err != nil || string(got) != want || r.IDs != rootfs.IDsSingle {
		t.Errorf("owners %q (%v), want %q; ids %s", got, err, want, r.IDs)
	}
}

func TestBusyboxRunsInItsRoot(t *testing.T) {
	bin, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skip("needs tool busybox: ", err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755}, {Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755, Size: int64(len(bin))},
		{Typeflag: tar.TypeSymlink, Name: "bin/sh", Linkname: "busybox"}, {Typeflag: tar.TypeLink, Name: "bin/ls", Linkname: "bin/busybox"}} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write(bin); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Close()
	base := t.TempDir()
	img := imageOf(t, b.Bytes(), tarOf(t, entry{"etc/motd", "hello"}, entry{"etc/old", ""}), tarOf(t, entry{"etc/.wh.old", ""}))
	r := prepare(t, openStore(t, filepath.Join(base, "store")), layoutOf(t, filepath.Join(base, "layout"), map[string]v1.Image{"": img}))
	cmd := exec.Command("/bin/sh", "-c", "busybox cat /etc/motd; ls /etc; echo $$ > /new; busybox rm /etc/motd; ls /etc | busybox wc -l")
	cmd.Env, cmd.Dir = []string{"PATH=/bin"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: mounted(t, r)}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "hellomotd\n0\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestADeletionOfWhatIsNotThere(t *testing.T) {
	base := t.TempDir()
	img := imageOf(t, tarOf(t, entry{"d/", ""}, entry{"d/f", "x"}, entry{"d/.wh.never", ""}), tarOf(t, entry{"e/", ""}, entry{"e/.wh.never", ""}))
	r := prepare(t, openStore(t, filepath.Join(base, "store")), layoutOf(t, filepath.Join(base, "layout"), map[string]v1.Image{"": img}))
	root := mounted(t, r)
	for dir, want := range map[string][]string{"d": {"f"}, "e": nil} {
		list, err := os.ReadDir(filepath.Join(root, dir))
		var names []string
		for _, e := range list {
			names = append(names, e.Name())
		}
		if err != nil || !reflect.DeepEqual(names, want) {
			t.Errorf("%s holds %q (%v), want %q", dir, names, err, want)
		}
	}
}
