package share

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// What is open and has no name any more goes on in each machine by itself: a file that two have
// open with what was written to it, and a folder.
func TestRemovedGoesOn(t *testing.T) {
	s, dir := newServer(t)
	keep := filepath.Dir(dir)
	d, f := find(t, s, "d"), find(t, s, "d", "f")
	must := func(s *Server, what string, req []byte) []byte {
		t.Helper()
		errno, b := talk(t, s, req)
		if errno != 0 {
			t.Fatalf("%s: %v", what, errno)
		}
		return b
	}
	write := func(s *Server, fh uint64, text string) {
		t.Helper()
		must(s, "write", ask(opWrite, f, append(cat(fh, uint64(2), len(text), 0, uint64(0), 0, 0), text...)))
	}
	read := func(s *Server, fh uint64) string {
		t.Helper()
		return string(must(s, "read", ask(opRead, f, cat(fh, uint64(0), 100, 0, uint64(0), 0, 0))))
	}
	one := binary.LittleEndian.Uint64(must(s, "open", ask(opOpen, f, cat(unix.O_WRONLY, 0))))
	two := binary.LittleEndian.Uint64(must(s, "open", ask(opOpen, f, cat(unix.O_RDONLY, 0))))
	folder := binary.LittleEndian.Uint64(must(s, "open the folder", ask(opOpendir, d, cat(0, 0))))
	must(s, "unlink", ask(opUnlink, d, cat("f")))
	must(s, "rmdir", ask(opRmdir, rootID, cat("d")))
	write(s, one, "SIDE")
	s.Hold()
	st, err := s.State(keep)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	resume := func() (*Server, error) {
		var st State
		if err := json.Unmarshal(text, &st); err != nil {
			t.Fatal(err)
		}
		return Resume(Options{Dir: dir}, st, keep)
	}
	for _, own := range []string{"both", "each"} {
		c, err := resume()
		if err != nil {
			t.Fatal(err)
		}
		if got := read(c, two); got != "inSIDE" {
			t.Errorf("it holds %q", got)
		}
		write(c, one, own)
		if got := read(c, two); got != "in"+own {
			t.Errorf("two that have it open see two files: %q", got)
		}
		if b := must(c, "look", ask(opGetattr, f, cat(0, 0, uint64(0)))); binary.LittleEndian.Uint64(b[24:]) != 6 || binary.LittleEndian.Uint32(b[76:])&0o7777 != uint32(fileMode(t, s, one)) {
			t.Errorf("it is another: %x", b)
		}
		// As on Linux itself, such a folder has no list, and is one.
		list := ask(opReaddir, d, cat(folder, uint64(0), 4096, 0, uint64(0), 0, 0))
		if errno, b := talk(t, c, list); errno != unix.ENOENT {
			t.Errorf("the folder's list: %v, %q", errno, b)
		}
		must(c, "look at the folder", ask(opGetattr, d, cat(0, 0, uint64(0))))
		c.Close()
	}
	name := removedName(keep, f)
	if err := os.WriteFile(name, []byte("inSIDe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := resume(); bailey.CodeOf(err) != bailey.CodeRestoreIncomplete {
		t.Errorf("with other content: %v, %v", c, err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if c, err := resume(); bailey.CodeOf(err) != bailey.CodeRestoreIncomplete {
		t.Errorf("without its content: %v, %v", c, err)
	}
	left, _ := filepath.Glob(filepath.Join(keep, "folder-*"))
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func fileMode(t *testing.T, s *Server, fh uint64) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(s.handles[fh].fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Mode & 0o7777
}
