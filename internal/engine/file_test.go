//go:build linux

package engine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// TestFiles has one engine for all, because opening one takes longer than most.
func TestFiles(t *testing.T) {
	e := openEngine(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *Engine)
	}{
		{"Sizes", fileSizes}, {"Ranges", fileRanges}, {"Atomic", fileAtomic}, {"Names", fileNames}, {"Tar", fileTar}, {"TarRefuses", fileTarRefuses},
		{"Move", fileMove}, {"Watch", fileWatch}, {"Search", fileSearch}, {"Links", fileLinks}, {"Asleep", fileAsleep}, {"DiskFull", fileDiskFull},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, e) })
	}
}

// noise gives bytes that are not alike, without holding them.
type noise struct {
	left, at int64
	sum      io.Writer
}

func (n *noise) Read(p []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), n.left)]
	for i := range p {
		o := uint64(n.at) + uint64(i)
		p[i] = byte((o >> 3) * 0x9e3779b97f4a7c15 >> (8 * (o & 7)))
	}
	n.at, n.left = n.at+int64(len(p)), n.left-int64(len(p))
	n.sum.Write(p)
	return len(p), nil
}

func write(t testing.TB, e *Engine, ref, p, text string) {
	t.Helper()
	if _, err := e.WriteFile(t.Context(), me, ref, p, 0, strings.NewReader(text)); err != nil {
		t.Fatalf("write %s: %v", p, err)
	}
}

func read(t testing.TB, e *Engine, ref, p string) string {
	t.Helper()
	r, _, err := e.ReadFile(t.Context(), me, ref, p, 0, -1)
	if err != nil {
		t.Fatalf("read %s: %v", p, err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %s: %v", p, err)
	}
	return string(text)
}

// fileSizes is T34 and T36: what the answer says is what is there, at any size.
func fileSizes(t *testing.T, e *Engine) {
	s := create(t, e, process)
	for _, size := range []int64{0, 1, 18 << 10, 96<<10 + 1, 1 << 20, 5 << 20, 32 << 20} {
		sum := sha256.New()
		p := fmt.Sprintf("some/folder/f%d", size)
		w, err := e.WriteFile(t.Context(), me, s.ID, p, 0o640, &noise{left: size, sum: sum})
		if err != nil {
			t.Fatal(err)
		}
		want := hex.EncodeToString(sum.Sum(nil))
		if w.Size != size || w.SHA256 != want || !strings.HasPrefix(w.Path, "/") {
			t.Errorf("%d: the answer is %+v", size, w)
		}
		r, info, err := e.ReadFile(t.Context(), me, s.ID, p, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		again := sha256.New()
		n, err := io.Copy(again, r)
		r.Close()
		if err != nil || n != size || hex.EncodeToString(again.Sum(nil)) != want || info.Size != size || info.Mode != "0640" || info.Type != "file" {
			t.Errorf("%d: read again: %d, %+v, %v", size, n, info, err)
		}
		if out, _, _ := runs(t, e, s.ID, shell("sha256sum < "+w.Path)); !strings.HasPrefix(out, want) {
			t.Errorf("%d: a command sees %q", size, out)
		}
	}
}

func fileRanges(t *testing.T, e *Engine) {
	s := create(t, e, process)
	write(t, e, s.ID, "/tmp/f", "0123456789")
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{0, -1, "0123456789"}, {3, -1, "3456789"}, {3, 2, "34"}, {8, 100, "89"}, {10, -1, ""}, {1000, 5, ""}, {5, 0, ""}} {
		r, info, err := e.ReadFile(t.Context(), me, s.ID, "/tmp/f", c.offset, c.length)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(got) != c.want || info.Size != 10 {
			t.Errorf("%+v: %q, %+v, %v", c, got, info, err)
		}
	}
	for _, c := range [][2]int64{{-1, 0}, {0, -2}} {
		if _, _, err := e.ReadFile(t.Context(), me, s.ID, "/tmp/f", c[0], c[1]); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%d: %v", c, err)
		}
	}
	for p, want := range map[string]bailey.Code{"/tmp/none": bailey.CodeNotFound, "/tmp": bailey.CodeUsage, "/dev/zero": bailey.CodeUsage, "/tmp/f/x": bailey.CodeNotFound, "a\x00b": bailey.CodeUsage} {
		if _, _, err := e.ReadFile(t.Context(), me, s.ID, p, 0, -1); bailey.CodeOf(err) != want {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// fileAtomic: one that breaks off leaves what was there.
func fileAtomic(t *testing.T, e *Engine) {
	s := create(t, e, process)
	write(t, e, s.ID, "/tmp/at/f", "before")
	broken := errors.New("the sender broke off")
	_, err := e.WriteFile(t.Context(), me, s.ID, "/tmp/at/f", 0, io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), brokenOff{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("it gives %v", err)
	}
	if got := read(t, e, s.ID, "/tmp/at/f"); got != "before" {
		t.Errorf("it is %.20q", got)
	}
	eventually(t, 5*time.Second, "nothing to be left beside it", func() bool {
		out, _, _ := runs(t, e, s.ID, shell("ls -A /tmp/at"))
		return out == "f\n"
	})
	if _, err := e.WriteFile(t.Context(), me, s.ID, "/tmp/at/f", 0o100000, strings.NewReader("")); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("a mode that is none: %v", err)
	}
	for p, want := range map[string]bailey.Code{"/tmp": bailey.CodeUsage, "/dev/null": bailey.CodeUsage, "/tmp/at/f/x": bailey.CodeNotFound} {
		if _, err := e.WriteFile(t.Context(), me, s.ID, p, 0, strings.NewReader("")); bailey.CodeOf(err) != want {
			t.Errorf("%s: %v", p, err)
		}
	}
}

type brokenOff struct{ err error }

func (f brokenOff) Read([]byte) (int, error) { return 0, f.err }

// fileNames: every name that a file can have, kinds, links.
func fileNames(t *testing.T, e *Engine) {
	s := create(t, e, process)
	for _, name := range []string{"plain", "with space", "ü", "new\nline", "\xff\xfe", "-dash", "*"} {
		p := "/tmp/names/" + name
		write(t, e, s.ID, p, name)
		if got := read(t, e, s.ID, p); got != name {
			t.Errorf("%q: %q", name, got)
		}
	}
	if _, _, x := runs(t, e, s.ID, shell("cd /tmp/names && ln -s plain link && mkfifo fifo && mkdir -p sub/deep && chmod 1750 sub")); *x.ExitCode != 0 {
		t.Fatal(x.End)
	}
	found := map[string]api.FileInfo{}
	if err := e.ListFiles(t.Context(), me, s.ID, "/tmp/names", 2, func(f api.FileInfo) error {
		p := f.Path
		if f.PathBytes != nil {
			p = string(f.PathBytes)
		}
		found[strings.TrimPrefix(p, "/tmp/names/")] = f
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(found) != 11 || found["link"].Type != "symlink" || found["link"].Target != "plain" || found["fifo"].Type != "fifo" || found["sub"].Mode != "1750" ||
		found["sub/deep"].Type != "dir" || found["\xff\xfe"].Path != "/tmp/names/\uFFFD" || found["ü"].PathBytes != nil {
		t.Errorf("listed: %+v", found)
	}
	stop := errors.New("enough")
	if err := e.ListFiles(t.Context(), me, s.ID, "/tmp/names", 1, func(api.FileInfo) error { return stop }); err != stop {
		t.Errorf("a listing that is ended: %v", err)
	}
	if err := e.ListFiles(t.Context(), me, s.ID, "/tmp/names", 257, nil); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("too deep: %v", err)
	}
	if f, err := e.StatFile(t.Context(), me, s.ID, "/tmp/names/link"); err != nil || f.Type != "symlink" {
		t.Errorf("a link: %+v, %v", f, err)
	}
	if err := e.RemoveFile(t.Context(), me, s.ID, "/tmp/names", false); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("a folder that is not empty: %v", err)
	}
	for range 2 {
		if err := e.Mkdir(t.Context(), me, s.ID, "/tmp/a/b/c", 0o711); err != nil {
			t.Error(err)
		}
	}
	if err := e.RemoveFile(t.Context(), me, s.ID, "/tmp/names", true); err != nil {
		t.Error(err)
	}
	if _, err := e.StatFile(t.Context(), me, s.ID, "/tmp/names"); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("after its removal: %v", err)
	}
}

// archive makes a tar of entries.
func archive(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		text := h.Linkname
		if h.Typeflag == tar.TypeReg {
			h.Size, h.Linkname = int64(len(text)), ""
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			io.WriteString(w, text)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// fileTar is T35: all goes in and out, whatever a project ignores.
func fileTar(t *testing.T, e *Engine) {
	s := create(t, e, process)
	in := archive(t,
		tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "as git writes it"}},
		tar.Header{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeReg, Name: ".gitignore", Mode: 0o644, Linkname: "bin/\n"},
		tar.Header{Typeflag: tar.TypeReg, Name: "bin/x", Mode: 0o755, Linkname: "program"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "bin/x"},
		tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "bin/x"},
		tar.Header{Typeflag: tar.TypeReg, Name: "\xff", Mode: 0o600, Linkname: "odd"})
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(in)
	z.Close()
	for _, c := range []struct {
		to   string
		data []byte
	}{{"/tmp/plain", in}, {"/tmp/zipped", zipped.Bytes()}} {
		res, err := e.TarIn(t.Context(), me, s.ID, c.to, bytes.NewReader(c.data))
		if err != nil || res.Files != 5 || res.Bytes != 15 || len(res.Skipped) != 0 {
			t.Fatalf("%s: %+v, %v", c.to, res, err)
		}
		if out, _, _ := runs(t, e, s.ID, shell("cd "+c.to+"; cat bin/x l h; ls -A | wc -l; test -x bin/x && echo x")); out != "programprogramprogram5\nx\n" {
			t.Errorf("%s: %q", c.to, out)
		}
		var out bytes.Buffer
		if err := e.TarOut(t.Context(), me, s.ID, c.to, &out); err != nil {
			t.Fatal(err)
		}
		var names []string
		for r := tar.NewReader(&out); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, h.Name)
		}
		slices.Sort(names)
		if want := []string{".gitignore", "bin/", "bin/x", "h", "l", "\xff"}; !slices.Equal(names, want) {
			t.Errorf("%s: %q came out", c.to, names)
		}
	}
	if res, err := e.TarIn(t.Context(), me, s.ID, "/tmp/empty", bytes.NewReader(archive(t))); err != nil || res.Files != 0 {
		t.Errorf("an empty one: %+v, %v", res, err)
	}
	full := errors.New("nobody takes it")
	if err := e.TarOut(t.Context(), me, s.ID, "/tmp/plain", failingWriter{full}); err != full {
		t.Errorf("one that nobody takes: %v", err)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func fileTarRefuses(t *testing.T, e *Engine) {
	s := create(t, e, process)
	var half bytes.Buffer
	z := gzip.NewWriter(&half)
	z.Write(archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "a", Linkname: strings.Repeat("x", 100_000)}))
	z.Flush()
	whole := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "a", Linkname: strings.Repeat("x", 100_000)})
	for what, data := range map[string][]byte{
		"no archive":  []byte(strings.Repeat("no archive ", 100)),
		"half of one": whole[:50_000],
		"half gzip":   half.Bytes(),
		"outside":     archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "../a", Linkname: "x"}),
		"absolute":    archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "/tmp/a", Linkname: "x"}),
		"an odd kind": archive(t, tar.Header{Typeflag: 'Z', Name: "a"}),
	} {
		if res, err := e.TarIn(t.Context(), me, s.ID, "/tmp/x", bytes.NewReader(data)); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%s: %+v, %v", what, res, err)
		}
	}
}

// fileMove: also a folder of a lower layer, which overlayfs does not rename.
func fileMove(t *testing.T, e *Engine) {
	s := create(t, e, process)
	write(t, e, s.ID, "/tmp/mv/a/b/f", "f")
	write(t, e, s.ID, "/tmp/mv/g", "g")
	for _, m := range [][2]string{{"/tmp/mv/a", "/tmp/mv/c"}, {"/tmp/mv/g", "/tmp/mv/c/b/f"}, {"/tmp/mv/c", "/dev/shm/c"}, {"/dev/shm/c/b/f", "/tmp/mv/h"}} {
		if err := e.MoveFile(t.Context(), me, s.ID, m[0], m[1]); err != nil {
			t.Errorf("%s: %v", m, err)
		}
		if _, err := e.StatFile(t.Context(), me, s.ID, m[0]); bailey.CodeOf(err) != bailey.CodeNotFound {
			t.Errorf("%s is there: %v", m[0], err)
		}
	}
	if got := read(t, e, s.ID, "/tmp/mv/h"); got != "g" {
		t.Errorf("%q", got)
	}
	if out, _, _ := runs(t, e, s.ID, shell("find /tmp/mv /dev/shm | sort")); out != "/dev/shm\n/dev/shm/c\n/dev/shm/c/b\n/tmp/mv\n/tmp/mv/h\n" {
		t.Errorf("%q", out)
	}
	if err := e.MoveFile(t.Context(), me, s.ID, "/tmp/mv/none", "/tmp/mv/x"); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("nothing: %v", err)
	}
	write(t, e, s.ID, "/tmp/mv/full/x", "x")
	if err := e.MoveFile(t.Context(), me, s.ID, "/dev/shm/c", "/tmp/mv/full"); err == nil {
		t.Error("a folder that is not empty was replaced")
	}
	if out, _, _ := runs(t, e, s.ID, shell("find /tmp/mv /dev/shm -name '.bailey*'; cat /tmp/mv/full/x; ls /dev/shm")); out != "xc\n" {
		t.Errorf("afterwards %q", out)
	}
}

func fileWatch(t *testing.T, e *Engine) {
	s := create(t, e, process)
	write(t, e, s.ID, "/tmp/w/sub/f", "f")
	ready, seen := make(chan struct{}), make(chan api.WatchEvent, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- e.WatchFiles(ctx, me, s.ID, "/tmp/w", func() { close(ready) }, func(ev api.WatchEvent) error { seen <- ev; return nil })
	}()
	<-ready
	runs(t, e, s.ID, shell("cd /tmp/w; echo x > new; mv new sub/other; rm sub/f"))
	want := []api.WatchEvent{{Path: "/tmp/w/new", Op: "create"}, {Path: "/tmp/w/new", Op: "write"}, {Path: "/tmp/w/sub/f", Op: "remove"}}
	limit := time.After(patience)
	for len(want) > 0 {
		select {
		case ev := <-seen:
			want = slices.DeleteFunc(want, func(w api.WatchEvent) bool { return w == ev })
		case <-limit:
			t.Fatalf("not seen: %+v", want)
		}
	}
	// It holds no pause, and ends with the sandbox.
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if bailey.CodeOf(err) != bailey.CodeSandboxLost {
			t.Errorf("it ended with %v", err)
		}
	case <-limit:
		t.Fatal("it did not end")
	}
}

func fileSearch(t *testing.T, e *Engine) {
	s := create(t, e, process)
	for p, text := range map[string]string{"a.go": "package a\n// TODO one\n", "sub/b.go": "x\nTODO two\n\nTODO", "c.txt": "todo\n", "bin": "TODO\x00", "empty.go": "",
		"long.txt": strings.Repeat("x", 200_000) + "TODO" + strings.Repeat("y", 200_000) + "\nafter", "big.txt": strings.Repeat("TODO\n", 100_000)} {
		write(t, e, s.ID, "/tmp/s/"+p, text)
	}
	runs(t, e, s.ID, shell("ln -s /etc/passwd /tmp/s/link; mkfifo /tmp/s/fifo"))
	hits := func(q api.SearchQuery) (list []string, res api.SearchResult) {
		t.Helper()
		q.Path = "/tmp/s"
		res, err := e.SearchFiles(t.Context(), me, s.ID, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range res.Hits {
			list = append(list, fmt.Sprintf("%s:%d", strings.TrimPrefix(h.Path, "/tmp/s/"), h.Line))
		}
		slices.Sort(list)
		return list, res
	}
	for _, c := range []struct {
		q    api.SearchQuery
		want []string
		cut  bool
	}{
		{api.SearchQuery{Name: "*.go"}, []string{"a.go:0", "empty.go:0", "sub/b.go:0"}, false},
		{api.SearchQuery{Text: "TODO", MaxBytes: 450_000}, []string{"a.go:2", "long.txt:1", "sub/b.go:2", "sub/b.go:4"}, false},
		{api.SearchQuery{Text: "^TODO.*o$", Regexp: true, Name: "*.go"}, []string{"sub/b.go:2"}, false},
		{api.SearchQuery{Text: "(?i)^todo$", Regexp: true, Name: "c*"}, []string{"c.txt:1"}, false},
		{api.SearchQuery{Text: "TODO", Name: "big.txt", MaxHits: 3}, []string{"big.txt:1", "big.txt:2", "big.txt:3"}, true},
		{api.SearchQuery{Text: "root", Name: "link"}, nil, false},
	} {
		got, res := hits(c.q)
		if !slices.Equal(got, c.want) || res.Cut != c.cut {
			t.Errorf("%+v: %q, cut %v", c.q, got, res.Cut)
		}
	}
	_, res := hits(api.SearchQuery{Text: "TODO", MaxBytes: 450_000})
	slices.Sort(res.Skipped)
	if len(res.Skipped) != 2 || !strings.HasPrefix(res.Skipped[0], "/tmp/s/big.txt: ") || !strings.HasPrefix(res.Skipped[1], "/tmp/s/bin: ") {
		t.Errorf("not looked into: %q", res.Skipped)
	}
	for _, q := range []api.SearchQuery{{}, {Path: "/"}, {Path: "/", Name: "["}, {Path: "/", Text: "(", Regexp: true}, {Path: "/", Name: "a", MaxHits: -1}, {Path: "/", Name: "a", MaxBytes: 1 << 40}} {
		if _, err := e.SearchFiles(t.Context(), me, s.ID, q); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if res, err := e.SearchFiles(t.Context(), me, s.ID, api.SearchQuery{Path: "/tmp/s/a.go", Text: "TODO"}); err != nil || len(res.Hits) != 1 || res.Hits[0].Path != "/tmp/s/a.go" {
		t.Errorf("in one file: %+v, %v", res, err)
	}
	if _, err := e.SearchFiles(t.Context(), me, s.ID, api.SearchQuery{Path: "/tmp/none", Text: "x"}); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("nowhere: %v", err)
	}
}

// fileLinks is T38: no link leads out, whoever swaps it meanwhile.
func fileLinks(t *testing.T, e *Engine) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("the host's"), 0o666); err != nil {
		t.Fatal(err)
	}
	own := filepath.Dir(outside)
	for _, p := range []string{outside, own, filepath.Dir(own)} { // whoever a sandbox is could reach it
		os.Chmod(p, 0o777)
	}
	for name, spec := range atLevels {
		if name == "container" {
			spec = api.SandboxSpec{Isolation: bailey.IsolationContainer}
		}
		s := create(t, e, spec)
		if _, _, x := runs(t, e, s.ID, shell(fmt.Sprintf("cd /tmp; ln -s %s file; ln -s %s dir; ln -s ../../../../../../../..%s up; ln -s /proc/1/root%s root", outside, filepath.Dir(outside), outside, outside))); *x.ExitCode != 0 {
			t.Fatal(x.End)
		}
		for _, p := range []string{"/tmp/file", "/tmp/dir/outside", "/tmp/up", "/tmp/root", "/../../../../.." + outside, "/proc/1/root" + outside, "/proc/self/root" + outside, "/proc/self/cwd/" + outside} {
			if r, _, err := e.ReadFile(t.Context(), me, s.ID, p, 0, -1); err == nil {
				text, _ := io.ReadAll(r)
				r.Close()
				t.Errorf("%s: %s is %q", name, p, text)
			}
			if p != "/tmp/file" && p != "/tmp/up" && p != "/tmp/root" { // those are replaced themselves
				e.WriteFile(t.Context(), me, s.ID, p, 0, strings.NewReader("the sandbox's"))
			}
			var b bytes.Buffer
			e.TarOut(t.Context(), me, s.ID, p, &b)
			if bytes.Contains(b.Bytes(), []byte("the host's")) {
				t.Errorf("%s: %s was packed", name, p)
			}
		}
		e.TarIn(t.Context(), me, s.ID, "/tmp/dir", bytes.NewReader(archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "outside", Mode: 0o644, Linkname: "the sandbox's"})))
		e.MoveFile(t.Context(), me, s.ID, "/tmp/file", "/tmp/dir/outside")
		e.RemoveFile(t.Context(), me, s.ID, "/tmp/dir/outside", false)
		// A thread that swaps a folder for a link, as fast as it can.
		x := begin(t, e, s.ID, shell(fmt.Sprintf("cd /tmp; mkdir real swap; echo inside > real/outside; ln -s %s lead; while :; do mv -T lead swap 2>/dev/null; mv -T swap lead 2>/dev/null; rm -rf swap; cp -r real swap; rm -rf swap; ln -s %s swap; rm swap; done", filepath.Dir(outside), filepath.Dir(outside))))
		for range 300 {
			if r, _, err := e.ReadFile(t.Context(), me, s.ID, "/tmp/swap/outside", 0, -1); err == nil {
				text, _ := io.ReadAll(r)
				r.Close()
				if strings.Contains(string(text), "host") {
					t.Fatalf("%s: it read %q", name, text)
				}
			}
			e.WriteFile(t.Context(), me, s.ID, "/tmp/swap/outside", 0, strings.NewReader("the sandbox's"))
			e.MoveFile(t.Context(), me, s.ID, "/tmp/swap/outside", "/tmp/swap/outside2")
			e.RemoveFile(t.Context(), me, s.ID, "/tmp/swap/outside", true)
		}
		if err := e.SignalExec(t.Context(), me, s.ID, x.ID, "KILL"); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(outside); err != nil || string(text) != "the host's" {
			t.Fatalf("%s: the host's file is %q, %v", name, text, err)
		}
		if list, err := os.ReadDir(filepath.Dir(outside)); err != nil || len(list) != 1 {
			t.Fatalf("%s: the host's folder has %v, %v", name, list, err)
		}
	}
}

// fileAsleep: a sandbox that sleeps is woken.
func fileAsleep(t *testing.T, e *Engine) {
	s := create(t, e, process)
	write(t, e, s.ID, "f", "kept")
	for _, disk := range []bool{false, true} {
		if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: disk}); err != nil {
			t.Fatal(err)
		}
		if got := read(t, e, s.ID, "f"); got != "kept" {
			t.Errorf("%q", got)
		}
	}
	if err := e.Delete(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.StatFile(t.Context(), me, s.ID, "f"); bailey.CodeOf(err) != bailey.CodeSandboxEnded {
		t.Errorf("of one that is gone: %v", err)
	}
}

// fileDiskFull is T32.
func fileDiskFull(t *testing.T, e *Engine) {
	testneeds.Root(t, "a disk of its own")
	testneeds.Host(t, testneeds.MountExt4)
	spec := api.SandboxSpec{Isolation: bailey.IsolationContainer}
	spec.Limits.Disk = 64 << 20
	s := create(t, e, spec)
	if _, errs, x := runs(t, e, s.ID, shell("dd if=/dev/zero of=$HOME/big bs=1M count=200")); *x.ExitCode == 0 || !strings.Contains(errs, "No space left") {
		t.Errorf("%q, %+v", errs, x.End)
	}
	_, err := e.WriteFile(t.Context(), me, s.ID, "f", 0, &noise{left: 10 << 20, sum: io.Discard})
	if bailey.CodeOf(err) != bailey.CodeDiskFull {
		t.Errorf("a write: %v", err)
	}
	if _, err := e.TarIn(t.Context(), me, s.ID, "t", bytes.NewReader(archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "a", Linkname: strings.Repeat("x", 10<<20)}))); bailey.CodeOf(err) != bailey.CodeDiskFull {
		t.Errorf("an archive: %v", err)
	}
	found := errors.New("found")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.Events(ctx, me, 0, func(ev api.Event) error {
		if ev.Kind == "sandbox.disk_full" && ev.Sandbox == s.ID {
			return found
		}
		return nil
	}); err != found {
		t.Errorf("no event: %v", err)
	}
	if out, _, _ := runs(t, e, s.ID, shell("rm $HOME/big; echo ok")); out != "ok\n" {
		t.Errorf("a command: %q", out)
	}
	write(t, e, s.ID, "f", "room again")
}
