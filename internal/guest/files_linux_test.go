//go:build linux && (amd64 || arm64)

package guest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"

	bailey "github.com/bailey-sandbox/bailey"
	"golang.org/x/sys/unix"
)

// inProcess is a server in this process, confined to a folder, and a client.
func inProcess(t testing.TB, framed bool) (c *Client, root string) {
	t.Helper()
	root = t.TempDir()
	os.Chmod(root, 0o755)
	s, err := NewServer(ServerOptions{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	host, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	inside, err := NewSocket(theirs)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(inside) }()
	var rw io.ReadWriteCloser = host
	if framed {
		rw = stream{host}
	}
	if c, err = NewClient(testContext(t), rw, ClientOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		<-served
		s.Close()
	})
	return c, root
}

// The kernel's resolution and the one for kernels that lack it.
func TestPathsStayInside(t *testing.T) {
	outside := t.TempDir()
	os.WriteFile(outside+"/secret", []byte("secret"), 0o644)
	root := t.TempDir()
	os.MkdirAll(root+"/a/b", 0o755)
	os.WriteFile(root+"/a/file", []byte("inside"), 0o644)
	os.Symlink(outside, root+"/abs")
	os.Symlink("../../../../../../../.."+outside, root+"/a/b/rel")
	os.Symlink("/a/file", root+"/a/b/good")
	os.Symlink("loop", root+"/loop")
	os.Symlink("..", root+"/a/b/up")
	os.Mkdir(root+"/proc", 0o755)
	s, err := NewServer(ServerOptions{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, tc := range []struct {
		path string
		want string
		err  error
	}{
		{"/a/file", "inside", nil},
		{"//a/./b/../file", "inside", nil},
		{"/../../a/file", "inside", nil},
		{"/a/b/good", "inside", nil},
		{"/a/b/up/file", "inside", nil},
		{"/abs/secret", "", unix.ENOENT},
		{"/a/b/rel/secret", "", unix.ENOENT},
		{"/../../../../../../../.." + outside + "/secret", "", unix.ENOENT},
		{"/loop", "", unix.ELOOP},
		{"/a/file/x", "", unix.ENOTDIR},
		{"/a/file/", "", unix.ENOTDIR},
	} {
		for name, open := range map[string]func() (int, error){
			"openat2": func() (int, error) { return s.open(tc.path, unix.O_RDONLY, 0) },
			"walk":    func() (int, error) { return s.walk(strings.TrimLeft(tc.path, "/"), unix.O_RDONLY|unix.O_CLOEXEC, 0) },
		} {
			fd, err := open()
			if err != nil || tc.err != nil {
				if !errors.Is(err, tc.err) {
					t.Errorf("%s %s: %v, want %v", name, tc.path, err, tc.err)
				}
				continue
			}
			b := make([]byte, 100)
			n, _ := unix.Read(fd, b)
			unix.Close(fd)
			if string(b[:n]) != tc.want {
				t.Errorf("%s %s: %q", name, tc.path, b[:n])
			}
		}
	}
	// The links of /proc lead to this process's own files.
	all, err := NewServer(ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	link := fmt.Sprintf("/proc/self/fd/%d", s.root)
	for name, open := range map[string]func() (int, error){
		"openat2": func() (int, error) { return all.open(link, unix.O_RDONLY, 0) },
		"walk":    func() (int, error) { return all.walk(link[1:], unix.O_RDONLY|unix.O_CLOEXEC, 0) },
	} {
		if fd, err := open(); err == nil {
			unix.Close(fd)
			t.Errorf("%s went through %s", name, link)
		}
	}
}

// A process that swaps a folder for a link meanwhile leads nobody outside.
func TestSymlinkSwap(t *testing.T) {
	c, root := inProcess(t, false)
	outside := t.TempDir()
	os.WriteFile(outside+"/f", []byte("outside"), 0o644)
	os.Mkdir(root+"/real", 0o755)
	os.WriteFile(root+"/real/f", []byte("inside"), 0o644)
	os.Symlink(outside, root+"/link")
	os.Mkdir(root+"/d", 0o755)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			unix.Renameat2(unix.AT_FDCWD, root+"/real", unix.AT_FDCWD, root+"/link", unix.RENAME_EXCHANGE)
		}
	}()
	ctx := testContext(t)
	for range 300 {
		if r, _, err := c.ReadFile(ctx, "/real/f", ReadOptions{}); err == nil {
			b, _ := io.ReadAll(r)
			r.Close()
			if string(b) == "outside" {
				t.Fatal("read outside")
			}
		}
		c.WriteFile(ctx, "/real/f", strings.NewReader("inside"), WriteOptions{})
		c.Remove(ctx, "/real/g", true, nil)
	}
	close(stop)
	<-done
	if b, _ := os.ReadFile(outside + "/f"); string(b) != "outside" {
		t.Fatalf("outside was changed to %q", b)
	}
	if d, _ := os.ReadDir(outside); len(d) != 1 {
		t.Fatalf("outside holds %v", d)
	}
}

func TestReadWrite(t *testing.T) {
	for _, framed := range []bool{false, true} {
		c, root := inProcess(t, framed)
		ctx := testContext(t)
		data := bytes.Repeat([]byte("0123456789\x00abcdef"), 200_000)
		w, err := c.WriteFile(ctx, "/x/y/file", bytes.NewReader(data), WriteOptions{Parents: true, Mode: 0o640})
		if err != nil || w.Size != int64(len(data)) || w.SHA256 != sha256.Sum256(data) {
			t.Fatalf("%+v %v", w, err)
		}
		st, err := os.Stat(root + "/x/y/file")
		if err != nil || st.Mode() != 0o640 {
			t.Fatal(st, err)
		}
		for _, o := range []ReadOptions{{}, {Offset: 5, Length: 7}, {Offset: int64(len(data)) - 3}, {Offset: 1 << 40}} {
			r, info, err := c.ReadFile(ctx, "/x/y/file", o)
			if err != nil || info.Size != int64(len(data)) || info.FileMode() != 0o640 {
				t.Fatal(info, err)
			}
			got, err := io.ReadAll(r)
			r.Close()
			want := data[min(o.Offset, int64(len(data))):]
			if o.Length > 0 {
				want = want[:min(o.Length, int64(len(want)))]
			}
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%+v gave %d bytes, want %d: %v", o, len(got), len(want), err)
			}
		}
		// A write that ends early leaves what was there, and nothing beside it.
		_, err = c.WriteFile(ctx, "/x/y/file", io.MultiReader(strings.NewReader("half"), failing{}), WriteOptions{})
		if !errors.Is(err, errFailing) {
			t.Fatal(err)
		}
		if err := c.Ping(ctx); err != nil {
			t.Fatal(err)
		}
		for d, _ := os.ReadDir(root + "/x/y"); len(d) != 1; d, _ = os.ReadDir(root + "/x/y") {
			if ctx.Err() != nil {
				t.Fatalf("left: %v", d)
			}
		}
		if b, _ := os.ReadFile(root + "/x/y/file"); !bytes.Equal(b, data) {
			t.Fatal("the file was changed")
		}
		// Through a link, and with the mode of what is replaced.
		os.Symlink("y/file", root+"/x/link")
		if _, err := c.WriteFile(ctx, "/x/link", strings.NewReader("new"), WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(root + "/x/y/file"); string(b) != "new" {
			t.Fatalf("%q", b)
		}
		if st, _ := os.Stat(root + "/x/y/file"); st.Mode() != 0o640 {
			t.Fatal(st.Mode())
		}
		// What is no regular file is refused at once.
		unix.Mkfifo(root+"/fifo", 0o600)
		for path, code := range map[string]bailey.Code{"/fifo": bailey.CodeUsage, "/x": bailey.CodeUsage, "/none": bailey.CodeNotFound} {
			if _, _, err := c.ReadFile(ctx, path, ReadOptions{}); bailey.CodeOf(err) != code {
				t.Errorf("%s: %v", path, err)
			}
		}
		if _, _, err := c.ReadFile(ctx, "/none", ReadOptions{}); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

var errFailing = errors.New("the source failed")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFailing }

func TestFolders(t *testing.T) {
	c, root := inProcess(t, false)
	ctx := testContext(t)
	if err := c.Mkdir(ctx, "/a/b/c", 0o700, true, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Mkdir(ctx, "/a/b/c", 0, true, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Mkdir(ctx, "/a", 0, false, nil); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Fatal(err)
	}
	odd := "new\nline \xff"
	os.WriteFile(root+"/a/"+odd, []byte("12345"), 0o600)
	os.Symlink("/etc", root+"/a/link")
	var names []string
	if err := c.List(ctx, "/a", ListOptions{Depth: 3}, func(i FileInfo) error {
		names = append(names, i.Name+">"+i.Target)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	sort.Strings(names)
	if got := fmt.Sprintf("%q", names); got != fmt.Sprintf("%q", []string{"b/c>", "b>", "link>/etc", odd + ">"}) {
		t.Fatal(got)
	}
	stop := errors.New("enough")
	if err := c.List(ctx, "/a", ListOptions{}, func(FileInfo) error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if i, err := c.Lstat(ctx, "/a/link", nil); err != nil || i.Target != "/etc" || i.FileMode()&fs.ModeSymlink == 0 {
		t.Fatal(i, err)
	}
	if l, err := c.Readlink(ctx, "/a/link", nil); err != nil || l != "/etc" {
		t.Fatal(l, err)
	}
	if i, err := c.Stat(ctx, "/a/b/c", nil); err != nil || !i.IsDir() || i.Mode&0o777 != 0o700 {
		t.Fatal(i, err)
	}
	if err := c.Rename(ctx, "/a/b", "/moved", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(ctx, "/moved", false, nil); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Fatal(err)
	}
	keep := t.TempDir()
	os.WriteFile(keep+"/keep", nil, 0o600)
	os.Symlink(keep, root+"/moved/c/out")
	for i := range 700 {
		os.MkdirAll(fmt.Sprintf("%s/moved/c/%d/x", root, i), 0o755)
	}
	if err := c.Remove(ctx, "/moved", true, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(keep + "/keep"); err != nil {
		t.Fatal("it followed a link")
	}
	for _, p := range []string{"/", "/a/..", "/a/.", "//"} {
		if err := c.Remove(ctx, p, true, nil); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%s: %v", p, err)
		}
	}
	for _, p := range []string{"", "rel", "/a\x00b", "/" + strings.Repeat("x", MaxPath)} {
		if _, err := c.Stat(ctx, p, nil); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// What lies deeper than a listing, an archive or a removal can go is an error,
// and what lies as deep as they go is there.
func TestDeepFolders(t *testing.T) {
	c, root := inProcess(t, false)
	ctx := testContext(t)
	deepest := strings.Repeat("/d", MaxDepth)
	if err := os.MkdirAll(root+"/top"+deepest, 0o755); err != nil {
		t.Fatal(err)
	}
	list := func(depth int) (levels int, err error) {
		err = c.List(ctx, "/top", ListOptions{Depth: depth}, func(FileInfo) error { levels++; return nil })
		return levels, err
	}
	if n, err := list(MaxDepth); n != MaxDepth || err != nil {
		t.Errorf("%d levels were listed, %v", n, err)
	}
	var whole bytes.Buffer
	if err := c.TarOut(ctx, "/top", &whole, TarOptions{}); err != nil || !bytes.Contains(whole.Bytes(), []byte(deepest[1:])) {
		t.Errorf("an archive of as many levels as there may be: %v", err)
	}

	if err := os.WriteFile(root+"/top"+deepest+"/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tooDeep := func(what string, err error) {
		t.Helper()
		if bailey.CodeOf(err) != bailey.CodeUsage || !errors.Is(err, syscall.ENAMETOOLONG) || !strings.Contains(err.Error(), "more than 256 levels") {
			t.Errorf("%s: %v", what, err)
		}
	}
	n, err := list(MaxDepth)
	tooDeep("a listing", err)
	if n != MaxDepth {
		t.Errorf("%d levels were listed before the error", n)
	}
	if n, err := list(MaxDepth - 1); n != MaxDepth-1 || err != nil {
		t.Errorf("a listing of fewer levels: %d, %v", n, err)
	}
	tooDeep("an archive", c.TarOut(ctx, "/top", io.Discard, TarOptions{}))
	if err := os.MkdirAll(root+"/top"+deepest+"/d/d", 0o755); err != nil {
		t.Fatal(err)
	}
	tooDeep("a removal", c.Remove(ctx, "/top", true, nil))
}

func TestFilesAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: files as another user")
	}
	c, root := inProcess(t, false)
	ctx := testContext(t)
	for dir := root; dir != "/"; dir = filepath.Dir(dir) { // the way to the folder is open to others
		if st, err := os.Stat(dir); err == nil && st.Mode()&1 == 0 {
			os.Chmod(dir, st.Mode()|1)
			defer os.Chmod(dir, st.Mode())
		}
	}
	u := &User{UID: 65534, GID: 65533, Groups: []uint32{4242}}
	os.WriteFile(root+"/roots", []byte("x"), 0o600)
	os.WriteFile(root+"/groups", []byte("g"), 0o640)
	os.Chown(root+"/groups", 0, 4242)
	os.Mkdir(root+"/mine", 0o777)
	os.Chmod(root+"/mine", 0o777)
	if _, _, err := c.ReadFile(ctx, "/roots", ReadOptions{User: u}); !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	if r, _, err := c.ReadFile(ctx, "/groups", ReadOptions{User: u}); err != nil {
		t.Fatal(err)
	} else {
		r.Close()
	}
	if _, err := c.WriteFile(ctx, "/no", strings.NewReader(""), WriteOptions{User: u}); !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	if _, err := c.WriteFile(ctx, "/mine/f", strings.NewReader(""), WriteOptions{User: u, Owner: &User{}}); !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	if _, err := c.WriteFile(ctx, "/mine/f", strings.NewReader("x"), WriteOptions{User: u}); err != nil {
		t.Fatal(err)
	}
	if i, err := c.Stat(ctx, "/mine/f", nil); err != nil || i.UID != 65534 || i.GID != 65533 {
		t.Fatal(i, err)
	}
	if err := c.Remove(ctx, "/roots", false, u); !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	// The next request is root's again, however threads are reused.
	for range 20 {
		if r, _, err := c.ReadFile(ctx, "/roots", ReadOptions{}); err != nil {
			t.Fatal(err)
		} else {
			r.Close()
		}
	}
}

func TestTar(t *testing.T) {
	c, root := inProcess(t, true)
	ctx := testContext(t)
	os.MkdirAll(root+"/src/dir/sub", 0o755)
	os.WriteFile(root+"/src/dir/file", []byte("content"), 0o4755)
	os.Chmod(root+"/src/dir/file", 0o755|fs.ModeSetuid)
	os.Link(root+"/src/dir/file", root+"/src/hard")
	os.Symlink("dir/file", root+"/src/soft")
	unix.Mkfifo(root+"/src/fifo", 0o600)
	os.WriteFile(root+"/src/big", bytes.Repeat([]byte("z"), 3<<20), 0o600)
	os.WriteFile(root+"/src/"+strings.Repeat("n", 200), nil, 0o600)
	xattrs := unix.Setxattr(root+"/src/big", "user.note", []byte("v\x00w"), 0) == nil
	os.Chmod(root+"/src/dir/sub", 0o500)
	var b bytes.Buffer
	if err := c.TarOut(ctx, "/src", &b, TarOptions{Xattrs: true}); err != nil {
		t.Fatal(err)
	}
	if err := c.TarIn(ctx, "/dst/deep", bytes.NewReader(b.Bytes()), TarOptions{Xattrs: true}); err != nil {
		t.Fatal(err)
	}
	// A second time, over what is there.
	if err := c.TarIn(ctx, "/dst/deep", bytes.NewReader(b.Bytes()), TarOptions{Xattrs: true}); err != nil {
		t.Fatal(err)
	}
	tree := func(dir string) (out []string) {
		filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				t.Fatal(err)
			}
			if p == dir {
				return nil
			}
			i, _ := d.Info()
			st := i.Sys().(*syscall.Stat_t)
			link, _ := os.Readlink(p)
			var content []byte
			if i.Mode().IsRegular() {
				content, _ = os.ReadFile(p)
			}
			v := make([]byte, 10)
			n, _ := unix.Lgetxattr(p, "user.note", v)
			out = append(out, fmt.Sprintf("%s %v %d %d %d %x %s %x %v", p[len(dir):], i.Mode(), st.Nlink, st.Uid, i.ModTime().UnixNano(), sha256.Sum256(content), link, v[:max(n, 0)], i.IsDir()))
			return nil
		})
		return out
	}
	a, z := tree(root+"/src"), tree(root+"/dst/deep")
	if strings.Join(a, "\n") != strings.Join(z, "\n") {
		t.Fatalf("before\n%s\nafter\n%s", strings.Join(a, "\n"), strings.Join(z, "\n"))
	}
	if !xattrs {
		t.Log("this file system has no user attributes")
	}
	b.Reset()
	if err := c.TarOut(ctx, "/src/soft", &b, TarOptions{}); err != nil {
		t.Fatal(err)
	}
	h, err := tar.NewReader(&b).Next()
	if err != nil || h.Name != "soft" || h.Size != 7 {
		t.Fatal(h, err)
	}
}

func TestHostileArchives(t *testing.T) {
	c, root := inProcess(t, false)
	ctx := testContext(t)
	outside := t.TempDir()
	os.WriteFile(outside+"/f", []byte("outside"), 0o600)
	archive := func(hs ...tar.Header) *bytes.Buffer {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range hs {
			if h.Typeflag == tar.TypeReg {
				h.Size = 1
			}
			h.Mode = 0o644
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				w.Write([]byte("x"))
			}
		}
		w.Close()
		return &b
	}
	reg := func(n string) tar.Header { return tar.Header{Name: n, Typeflag: tar.TypeReg} }
	for name, b := range map[string]*bytes.Buffer{
		"up":             archive(reg("../f")),
		"up in between":  archive(reg("a/../../f")),
		"absolute":       archive(reg(outside + "/f")),
		"hard link up":   archive(tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../f"}),
		"through a link": archive(tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, reg("l/f")),
		"link by a link": archive(tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "l/f"}),
		"garbage":        bytes.NewBufferString(strings.Repeat("garbage", 1000)),
		"cut":            bytes.NewBuffer(archive(reg("f")).Bytes()[:512]),
	} {
		err := c.TarIn(ctx, "/in", b, TarOptions{})
		if err == nil && !strings.HasPrefix(name, "through") {
			t.Errorf("%s was unpacked", name)
		}
		if b, _ := os.ReadFile(outside + "/f"); string(b) != "outside" {
			t.Fatalf("%s changed what lies outside", name)
		}
		os.RemoveAll(root + "/in")
	}
	if d, _ := os.ReadDir(outside); len(d) != 1 {
		t.Fatal(d)
	}
}

func TestWatch(t *testing.T) {
	c, root := inProcess(t, true)
	ctx, cancel := context.WithCancel(testContext(t))
	os.MkdirAll(root+"/w/sub", 0o755)
	ready := make(chan struct{})
	events := make(chan WatchEvent, 1000)
	done := make(chan error, 1)
	go func() {
		done <- c.Watch(ctx, "/w", WatchOptions{Recursive: true}, func() { close(ready) }, func(e WatchEvent) error {
			events <- e
			return nil
		})
	}()
	<-ready
	wait := func(op WatchOp, path string) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if e.Op&op != 0 && e.Path == path {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no event %b for %s", op, path)
			case err := <-done:
				t.Fatal(err)
			}
		}
	}
	os.WriteFile(root+"/w/sub/f", []byte("x"), 0o600)
	wait(WatchWrite, "sub/f")
	os.Rename(root+"/w/sub/f", root+"/w/g")
	wait(WatchCreate, "g")
	os.Mkdir(root+"/w/new", 0o755)
	wait(WatchCreate, "new")
	os.Remove(root + "/w/g")
	wait(WatchRemove, "g")
	// The answer to a request after it says that the new folder is watched too.
	os.WriteFile(root+"/w/new/in", nil, 0o600)
	os.WriteFile(root+"/w/new/in2", nil, 0o600)
	os.Chmod(root+"/w/sub", 0o700)
	wait(WatchAttrib, "sub")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := c.Watch(testContext(t), "/none", WatchOptions{}, nil, func(WatchEvent) error { return nil }); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Fatal(err)
	}
}
