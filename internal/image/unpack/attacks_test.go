package unpack_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// attack is a layer made to hurt. It must be refused, or be harmless in the
// way that check looks at. Whatever happens, nothing outside changes.
type attack struct {
	name  string
	items func(outside string) []item
	raw   func(t *testing.T) []byte // instead of items
	limit func(*unpack.Limits)
	check func(t *testing.T, root string, r unpack.Result) // nil: must be refused
}

func refused(name string, items func(outside string) []item) attack {
	return attack{name: name, items: items}
}

const capV2 = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

var attacks = []attack{
	refused("climbing name", func(string) []item { return []item{file("../evil", "x")} }),
	refused("climbing name that comes down again", func(string) []item { return []item{file("a/../../root/evil", "x")} }),
	refused("climbing inside the root", func(string) []item { return []item{file("a/../b", "x")} }),
	refused("absolute climbing name", func(string) []item { return []item{file("/../../evil", "x")} }),
	refused("write through an absolute link", func(o string) []item { return []item{link("l", o), file("l/evil", "x")} }),
	refused("write through a climbing link", func(string) []item { return []item{link("l", "../outside"), file("l/canary", "x")} }),
	refused("write through a link behind a link", func(string) []item {
		return []item{dir("d", 0o755), link("d/up", ".."), link("l", "d/up/../outside"), file("l/canary", "x")}
	}),
	refused("folder through a link", func(o string) []item { return []item{link("l", o), dir("l/evil", 0o777)} }),
	refused("link through a link", func(o string) []item { return []item{link("l", o), link("l/evil", "x")} }),
	refused("write through a magic link", func(string) []item { return []item{link("l", "/proc/self/root"), file("l/tmp/evil", "x")} }),
	refused("write through a descriptor", func(string) []item { return []item{link("l", "/proc/self/cwd"), file("l/evil", "x")} }),
	refused("links in a circle", func(string) []item { return []item{link("a", "b"), link("b", "a"), file("a/x", "x")} }),
	refused("hard link out, climbing", func(string) []item { return []item{hard("h", "../outside/canary")} }),
	refused("hard link out, absolute", func(o string) []item { return []item{hard("h", o+"/canary"), file("h", "x")} }),
	refused("hard link out through a link", func(o string) []item { return []item{link("l", o), hard("h", "l/canary")} }),
	refused("hard link to a folder", func(string) []item { return []item{dir("d", 0o755), hard("h", "d")} }),
	refused("hard link to the root", func(string) []item { return []item{hard("h", ".")} }),
	refused("hard link that would replace the folder its target lies in", func(string) []item {
		return []item{dir("d", 0o755), file("d/f", "x"), hard("d", "d/f")}
	}),
	refused("deletion of the folder above", func(string) []item { return []item{file("d/.wh...", "")} }),
	refused("deletion of the folder itself", func(string) []item { return []item{file("d/.wh..", "")} }),
	refused("deletion of nothing", func(string) []item { return []item{file(".wh.", "")} }),
	refused("deletion through a link", func(o string) []item { return []item{link("l", o), file("l/.wh.canary", "")} }),
	refused("opaque mark through a link", func(o string) []item { return []item{link("l", o), file("l/.wh..wh..opq", "")} }),
	refused("below a deletion mark", func(string) []item { return []item{file(".wh.d/f", "x")} }),
	refused("hard link to a deletion mark", func(string) []item { return []item{file(".wh.d", ""), hard("h", ".wh.d")} }),
	refused("below a file", func(string) []item { return []item{file("f", "x"), file("f/g", "x")} }),
	refused("the root as a link", func(o string) []item { return []item{link(".", o), file("evil", "x")} }),
	refused("the root as a link, named by a slash", func(o string) []item { return []item{link("//", o), file("evil", "x")} }),
	refused("the root as a file", func(string) []item { return []item{file("./", "x").with(func(h *tar.Header) { h.Name = "." })} }),
	refused("unknown type", func(string) []item { return []item{file("f", "").with(func(h *tar.Header) { h.Typeflag = 'Z' })} }),
	refused("a name part longer than any file system has", func(string) []item { return []item{file(strings.Repeat("n", 256), "x")} }),
	refused("negative owner", func(string) []item {
		return []item{file("f", "x").with(func(h *tar.Header) { h.Uid, h.Format = -2, tar.FormatGNU })}
	}),
	refused("value of an attribute too long", func(string) []item { return []item{file("f", "x").xattr("user.a", strings.Repeat("v", 70000))} }),
	refused("link with a target too long", func(string) []item { return []item{link("l", strings.Repeat("t/", 4000))} }),
	{name: "folders deeper than allowed", limit: func(l *unpack.Limits) { l.Depth = 20 },
		items: func(string) []item { return []item{file(strings.Repeat("d/", 20)+"f", "x")} }},
	{name: "folders deeper than allowed, by links", limit: func(l *unpack.Limits) { l.Depth = 20 },
		items: func(string) []item {
			deep := strings.Repeat("d/", 15)
			return []item{dir(deep, 0o755), link("l", deep), dir("l/"+strings.Repeat("e/", 15), 0o755), file("l/"+strings.Repeat("e/", 15)+"f", "x")}
		}},
	{name: "name longer than allowed", limit: func(l *unpack.Limits) { l.Path = 100 },
		items: func(string) []item { return []item{file(strings.Repeat("dddd/", 30)+"f", "x")} }},
	{name: "more entries than allowed", limit: func(l *unpack.Limits) { l.Entries = 10 },
		items: func(string) (out []item) {
			for i := range 11 {
				out = append(out, file(fmt.Sprint(i), ""))
			}
			return out
		}},
	{name: "more names than allowed", limit: func(l *unpack.Limits) { l.Names = 1000 },
		items: func(string) (out []item) {
			for i := range 11 {
				out = append(out, file(fmt.Sprint(i, strings.Repeat("n", 100)), ""))
			}
			return out
		}},
	{name: "more bytes than allowed", limit: func(l *unpack.Limits) { l.Bytes = 64 << 10 },
		items: func(string) []item { return []item{file("f", strings.Repeat("x", 65<<10))} }},
	{name: "a header that promises an exabyte", raw: func(t *testing.T) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: 1 << 60, Format: tar.FormatGNU}); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}},
	{name: "a sparse file of an exabyte", raw: func(t *testing.T) []byte {
		return sparseTar(t, 1<<50)
	}},
	{name: "gzip bomb by size", limit: func(l *unpack.Limits) { l.Bytes = 1 << 20 }, raw: func(t *testing.T) []byte {
		return gz(t, pack(t, file("f", strings.Repeat("\x00", 8<<20))))
	}},
	{name: "gzip bomb behind the end of the tar", limit: func(l *unpack.Limits) { l.Bytes = 1 << 20 }, raw: func(t *testing.T) []byte {
		return gz(t, append(pack(t, file("f", "x")), make([]byte, 8<<20)...))
	}},
	{name: "zstd bomb by ratio", limit: func(l *unpack.Limits) { l.RatioFrom = 8 << 20 }, raw: func(t *testing.T) []byte {
		var b bytes.Buffer
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write(pack(t, file("f", "x"))); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(z, zeros{}, 16<<20); err != nil {
			t.Fatal(err)
		}
		z.Close()
		return b.Bytes()
	}},
	{name: "zstd that asks for a window of gigabytes", raw: func(t *testing.T) []byte {
		// Magic, a frame header without single segment, window descriptor 0xA8:
		// 2^31 bytes (RFC 8878, 3.1.1.1.2), then an empty last block.
		return []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00}
	}},
	{name: "truncated tar", raw: func(t *testing.T) []byte { return pack(t, file("f", strings.Repeat("x", 4000)))[:2000] }},
	{name: "truncated gzip", raw: func(t *testing.T) []byte { b := gz(t, pack(t, file("f", "x"))); return b[:len(b)-6] }},
	{name: "gzip with a wrong sum", raw: func(t *testing.T) []byte {
		b := gz(t, pack(t, file("f", "x")))
		b[len(b)-8] ^= 1
		return b
	}},
	{name: "no tar at all", raw: func(*testing.T) []byte { return bytes.Repeat([]byte("rubbish "), 200) }},
	{name: "xz", raw: func(*testing.T) []byte { return []byte("\xfd7zXZ\x00rubbish") }},

	{name: "absolute name", items: func(o string) []item { return []item{file(o+"/evil", "x")} },
		check: func(t *testing.T, root string, _ unpack.Result) {
			wantContent(t, filepath.Join(root, filepath.Dir(root), "outside/evil"), "x")
		}},
	{name: "file over a link to the outside", items: func(o string) []item { return []item{link("f", o+"/canary"), file("f", "mine")} },
		check: func(t *testing.T, root string, _ unpack.Result) { wantContent(t, filepath.Join(root, "f"), "mine") }},
	{name: "folder over a link to the outside", items: func(o string) []item {
		return []item{link("l", o), dir("l", 0o777), file("l/canary", "mine")}
	}, check: func(t *testing.T, root string, _ unpack.Result) {
		wantContent(t, filepath.Join(root, "l/canary"), "mine")
	}},
	{name: "link over a folder whose mode is still to be set", items: func(o string) []item {
		return []item{dir("d", 0o777).with(func(h *tar.Header) { h.Uid = 7 }), file("d/f", "x"), link("d", o)}
	}, check: func(t *testing.T, root string, _ unpack.Result) { wantType(t, filepath.Join(root, "d"), unix.S_IFLNK) }},
	{name: "link to the outside over an opaque folder", items: func(o string) []item {
		return []item{dir("d", 0o755), file("d/.wh..wh..opq", ""), file("d/.wh.canary", ""), link("d", o)}
	}, check: func(t *testing.T, root string, _ unpack.Result) { wantType(t, filepath.Join(root, "d"), unix.S_IFLNK) }},
	{name: "hard link to a link, then written", items: func(o string) []item {
		return []item{link("s", o+"/canary"), hard("h", "s"), file("h", "mine")}
	}, check: func(t *testing.T, root string, _ unpack.Result) { wantContent(t, filepath.Join(root, "h"), "mine") }},
	{name: "file written over another name of a file", items: func(string) []item {
		return []item{file("a", "first"), hard("b", "a"), file("b", "second")}
	}, check: func(t *testing.T, root string, _ unpack.Result) {
		wantContent(t, filepath.Join(root, "a"), "first")
		wantContent(t, filepath.Join(root, "b"), "second")
	}},
	{name: "one name many times", items: func(string) []item {
		return []item{file("n", "1"), dir("n", 0o755), file("n/x", "2"), link("n", "m"), dir("n", 0o755), file("n/y", "3"), file("n", "4"), hard("n", "n")}
	}, check: func(t *testing.T, root string, _ unpack.Result) { wantContent(t, filepath.Join(root, "n"), "4") }},
	{name: "devices", items: func(string) []item {
		return []item{device("dev/sda", tar.TypeBlock, 8, 0), device("dev/mem", tar.TypeChar, 1, 1), device("gone", tar.TypeChar, 0, 0),
			hard("dev/sda2", "dev/sda"), hard("mem2", "dev/mem"), file("dev/kept", "x")}
	}, check: func(t *testing.T, root string, r unpack.Result) {
		for _, n := range []string{"dev/sda", "dev/mem", "gone", "dev/sda2", "mem2"} {
			if _, err := os.Lstat(filepath.Join(root, n)); !os.IsNotExist(err) {
				t.Errorf("%s is there (%v)", n, err)
			}
		}
		if len(r.Notes) != 5 {
			t.Errorf("%d notes, want one for each of 5 devices: %q", len(r.Notes), r.Notes)
		}
	}},
	{name: "device over a file", items: func(string) []item { return []item{file("f", "x"), device("f", tar.TypeChar, 1, 3)} },
		check: func(t *testing.T, root string, _ unpack.Result) {
			if _, err := os.Lstat(filepath.Join(root, "f")); !os.IsNotExist(err) {
				t.Errorf("the file that the image replaced is still there (%v)", err)
			}
		}},
	{name: "attributes that steer the host", items: func(string) []item {
		return []item{
			dir("d", 0o755).xattr("trusted.overlay.redirect", "/outside"), file("a", "").xattr("trusted.overlay.metacopy", ""),
			dir("e", 0o755).xattr("user.overlay.opaque", "y"), file("b", "").xattr("security.selinux", "root"),
			file("c", "").xattr("system.posix_acl_access", "x"), file("g", "").xattr("security.ima", "x"), file("k", "").xattr("user.kept", "v"),
			file("v3", "").xattr("security.capability", "\x01\x00\x00\x03"+strings.Repeat("\x00", 20)),
			file("v2", "").xattr("security.capability", capV2),
		}
	}, check: func(t *testing.T, root string, _ unpack.Result) {
		want := map[string]string{"k": "user.kept"}
		if ids() == rootfs.IDsHost {
			want["v2"] = "security.capability"
		}
		for _, n := range []string{"d", "a", "e", "b", "c", "g", "k", "v3", "v2"} {
			if got := xattrNames(t, filepath.Join(root, n)); got != want[n] {
				t.Errorf("%s has the attributes %q, want %q", n, got, want[n])
			}
		}
	}},
	{name: "owner outside the sandbox's ids", items: func(string) []item {
		return []item{file("f", "x").with(func(h *tar.Header) { h.Uid, h.Gid = 70000, 2000000 })}
	}, check: func(t *testing.T, root string, r unpack.Result) {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, "f"), &st); err != nil {
			t.Fatal(err)
		}
		if ids() == rootfs.IDsHost && (st.Uid != 65534 || st.Gid != 65534) {
			t.Errorf("owner %d:%d, want 65534:65534", st.Uid, st.Gid)
		}
		if len(r.Notes) != 1 {
			t.Errorf("notes %q, want one", r.Notes)
		}
	}},
	{name: "names made for terminals", items: func(string) []item { return []item{file("\x1b]0;evil\x07\n\xff", "x")} },
		check: func(t *testing.T, root string, _ unpack.Result) {
			wantContent(t, filepath.Join(root, "\x1b]0;evil\x07\n\xff"), "x")
		}},
	{name: "aufs bookkeeping", items: func(string) []item { return []item{file(".wh..wh.plnk", ""), file(".wh..wh.orph/x", "")} }},
}

func sparseTar(t *testing.T, size int64) []byte {
	// An old GNU sparse header (typeflag S): real size at 483, the map at 386.
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o644, Format: tar.FormatGNU}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	h := b.Bytes()
	h[156] = 'S'
	copy(h[386:], fmt.Sprintf("%011o\x00%011o\x00", int64(0), int64(0)))
	h[483] = 0x80
	for i := range 8 {
		h[483+11-i] = byte(size >> (8 * i))
	}
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h[:512] {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestAttacks(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			base := t.TempDir()
			outside := filepath.Join(base, "outside")
			if err := os.Mkdir(outside, 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(outside, "canary"), []byte("alive"), 0o640); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, base, "")
			limits := unpack.DefaultLimits
			if a.limit != nil {
				a.limit(&limits)
			}
			var layer []byte
			if a.raw != nil {
				layer = a.raw(t)
			} else {
				layer = pack(t, a.items(outside)...)
			}
			r, root, err := unpackInto(t, base, layer, limits)
			if after := snapshot(t, base, root); after != before {
				t.Errorf("the outside has changed:\n%s\nwas\n%s", after, before)
			}
			if a.check != nil {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				a.check(t, root, r)
				return
			}
			if bailey.CodeOf(err) != bailey.CodeImageInvalid {
				t.Errorf("error %v, want one with code %s", err, bailey.CodeImageInvalid)
			}
		})
	}
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	wantType(t, path, unix.S_IFREG)
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s holds %q (%v), want %q", path, b, err, want)
	}
}

func wantType(t *testing.T, path string, want uint32) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != want {
		t.Errorf("%s has type %o (%v), want %o", path, st.Mode&unix.S_IFMT, err, want)
	}
}

func xattrNames(t *testing.T, path string) string {
	t.Helper()
	b := make([]byte, 4096)
	n, err := unix.Llistxattr(path, b)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSuffix(string(b[:n]), "\x00"), "\x00", ",")
}
