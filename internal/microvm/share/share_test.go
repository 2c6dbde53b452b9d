package share

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// ask builds a request.
func ask(op uint32, node uint64, body []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(headerIn+len(body)))
	b = binary.LittleEndian.AppendUint32(b, op)
	b = binary.LittleEndian.AppendUint64(b, 7)
	b = binary.LittleEndian.AppendUint64(b, node)
	b = append(b, make([]byte, 16)...)
	binary.LittleEndian.PutUint32(b[24:], uint32(os.Getuid()))
	binary.LittleEndian.PutUint32(b[28:], uint32(os.Getgid()))
	return append(b, body...)
}

func cat(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = binary.LittleEndian.AppendUint32(b, uint32(p))
		case uint64:
			b = binary.LittleEndian.AppendUint64(b, p)
		case string:
			b = append(append(b, p...), 0)
		}
	}
	return b
}

// stream gives requests one after the other and keeps what is answered.
type stream struct {
	in  *bytes.Reader
	out bytes.Buffer
}

func (s *stream) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *stream) Write(p []byte) (int, error) { return s.out.Write(p) }

// talk asks one request at a time and gives the answers' errors and bodies.
func talk(t *testing.T, s *Server, req []byte) (unix.Errno, []byte) {
	t.Helper()
	st := &stream{in: bytes.NewReader(req)}
	if err := s.Serve(st); err != io.EOF {
		t.Fatalf("the conversation ended: %v", err)
	}
	b := st.out.Bytes()
	if len(b) < headerOut || int(binary.LittleEndian.Uint32(b)) != len(b) || binary.LittleEndian.Uint64(b[8:]) != 7 {
		t.Fatalf("an answer that is none: %x", b)
	}
	return unix.Errno(-int32(binary.LittleEndian.Uint32(b[4:]))), b[headerOut:]
}

func newServer(t testing.TB, live ...string) (*Server, string) {
	t.Helper()
	top, err := os.MkdirTemp("/dev/shm", "share")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	dir := filepath.Join(top, "root")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "d"), 0o755), os.WriteFile(filepath.Join(dir, "d/f"), []byte("inside"), 0o644),
		os.WriteFile(filepath.Join(top, "secret"), []byte("outside"), 0o644), os.Symlink("..", filepath.Join(dir, "up")),
		os.Symlink(filepath.Join(top, "secret"), filepath.Join(dir, "link")), unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(Options{Dir: dir, Live: live})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, dir
}

// find looks a path up and gives its node.
func find(t *testing.T, s *Server, names ...string) uint64 {
	t.Helper()
	at := uint64(rootID)
	for _, name := range names {
		errno, b := talk(t, s, ask(opLookup, at, cat(name)))
		if errno != 0 {
			t.Fatalf("look %s up: %v", name, errno)
		}
		at = binary.LittleEndian.Uint64(b)
	}
	return at
}

func TestNothingLeadsOut(t *testing.T) {
	s, dir := newServer(t)
	link, up, pipe, d := find(t, s, "link"), find(t, s, "up"), find(t, s, "pipe"), find(t, s, "d")
	for what, req := range map[string][]byte{
		"look at ..":              ask(opLookup, rootID, cat("..")),
		"look at a path":          ask(opLookup, rootID, cat("d/f")),
		"look at the empty name":  ask(opLookup, rootID, cat("")),
		"look through a link":     ask(opLookup, up, cat("secret")),
		"open a link":             ask(opOpen, link, cat(unix.O_RDONLY, 0)),
		"open a pipe":             ask(opOpen, pipe, cat(unix.O_RDONLY, 0)),
		"open a folder as a file": ask(opOpen, d, cat(unix.O_RDONLY, 0)),
		"truncate by a link":      ask(opSetattr, link, cat(setSize, 0, uint64(0), uint64(0), make8(8))),
		"make a device":           ask(opMknod, rootID, cat(unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)), 0, 0, "null")),
		"make a whiteout":         ask(opMknod, rootID, cat(unix.S_IFCHR|0o666, 0, 0, 0, "white")),
		"make at ..":              ask(opMkdir, rootID, cat(0o755, 0, "..")),
		"make through a link":     ask(opMkdir, up, cat(0o755, 0, "x")),
		"create over a link":      ask(opCreate, rootID, cat(unix.O_RDWR, 0o644, 0, 0, "link")),
		"rename to a path":        ask(opRename, rootID, cat(uint64(rootID), "d", "../x")),
		"rename with a whiteout":  ask(opRename2, rootID, cat(uint64(rootID), unix.RENAME_WHITEOUT, 0, "d", "x")),
		"set the layer's marks":   ask(opSetxattr, d, cat(1, 0, "trusted.overlay.opaque", "y")),
		"set a user's layer's":    ask(opSetxattr, d, cat(1, 0, "user.overlay.opaque", "y")),
		"a node nobody knows":     ask(opGetattr, 4711, cat(0, 0, uint64(0))),
		"a handle nobody has":     ask(opRead, d, cat(uint64(99), uint64(0), 10, 0, uint64(0), 0, 0)),
		"too much at once":        ask(opRead, d, cat(uint64(1), uint64(0), MaxWrite+1, 0, uint64(0), 0, 0)),
		"a body that is cut":      ask(opRename, rootID, cat(1)),
	} {
		if errno, b := talk(t, s, req); errno == 0 {
			t.Errorf("%s: done, %q", what, b)
		}
	}
	if b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "secret")); err != nil || string(b) != "outside" {
		t.Errorf("what lies outside is %q now: %v", b, err)
	}
}

// make8 is so many words of nothing, as text that cat leaves alone.
func make8(n int) string { return string(make([]byte, 8*n-1)) }

func TestNamesMove(t *testing.T) {
	s, dir := newServer(t)
	d := find(t, s, "d")
	f := find(t, s, "d", "f")
	if errno, _ := talk(t, s, ask(opLink, rootID, cat(f, "second"))); errno != 0 {
		t.Fatal("link:", errno)
	}
	if got := find(t, s, "second"); got != f {
		t.Errorf("the second name is node %d, the first %d", got, f)
	}
	if errno, _ := talk(t, s, ask(opRename, rootID, cat(uint64(rootID), "d", "e"))); errno != 0 {
		t.Fatal("rename:", errno)
	}
	if got := find(t, s, "e", "f"); got != f {
		t.Errorf("after its folder's rename the file is node %d, not %d", got, f)
	}
	errno, b := talk(t, s, ask(opOpen, f, cat(unix.O_RDWR, 0)))
	if errno != 0 {
		t.Fatal("open:", errno)
	}
	fh := binary.LittleEndian.Uint64(b)
	for _, r := range [][]byte{ask(opUnlink, d, cat("f")), ask(opUnlink, rootID, cat("second"))} {
		if errno, _ := talk(t, s, r); errno != 0 {
			t.Fatal("unlink:", errno)
		}
	}
	// Its names are gone, and it is open.
	if errno, b := talk(t, s, ask(opGetattr, f, cat(0, 0, uint64(0)))); errno != 0 || binary.LittleEndian.Uint64(b[24:]) != 6 {
		t.Errorf("look at what is open only: %v, %x", errno, b)
	}
	if errno, b := talk(t, s, ask(opRead, f, cat(fh, uint64(0), 100, 0, uint64(0), 0, 0))); errno != 0 || string(b) != "inside" {
		t.Errorf("read what is open only: %v, %q", errno, b)
	}
	if errno, _ := talk(t, s, ask(opRelease, f, cat(fh, 0, 0, uint64(0)))); errno != 0 {
		t.Error("release:", errno)
	}
	if len(s.handles) != 0 {
		t.Errorf("%d handles are left", len(s.handles))
	}
	if _, err := os.Lstat(filepath.Join(dir, "e/f")); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	// What is forgotten takes no room.
	for id, n := range s.nodes {
		if id != rootID {
			st := &stream{in: bytes.NewReader(ask(opForget, id, cat(n.lookups)))}
			if err := s.Serve(st); err != io.EOF {
				t.Fatal(err)
			}
		}
	}
	if len(s.nodes) != 1 {
		t.Errorf("%d nodes are left", len(s.nodes))
	}
}

func FuzzServe(f *testing.F) {
	f.Add(ask(opLookup, rootID, cat("d")))
	f.Add(append(ask(opMkdir, rootID, cat(0o755, 0, "x")), ask(opRename, rootID, cat(uint64(rootID), "x", "d"))...))
	f.Add(append(ask(opLookup, rootID, cat("d")), ask(opCreate, 2, cat(unix.O_RDWR, 0o644, 0, 0, "new"))...))
	f.Add(append(ask(opOpendir, rootID, cat(0, 0)), ask(opReaddirplus, rootID, cat(uint64(1), uint64(0), 4096, 0))...))
	f.Add(append(ask(opLookup, rootID, cat("d")), ask(opSetattr, 2, cat(setMode|setSize, 0, uint64(0), uint64(0), make8(8)))...))
	f.Add(append(ask(opLookup, rootID, cat("link")), ask(opBatchForget, 0, cat(1, 0, uint64(2), uint64(1)))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, dir := newServer(t)
		s.Serve(&stream{in: bytes.NewReader(b)})
		if b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "secret")); err != nil || string(b) != "outside" {
			t.Errorf("what lies outside is %q now: %v", b, err)
		}
		os.Chmod(filepath.Join(dir, "d"), 0o755)
	})
}
