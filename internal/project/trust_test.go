package project

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

// project makes a workspace with a file of that text.
func project(t *testing.T, text string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, ws string) *File {
	t.Helper()
	f, err := Open(ws)
	if err != nil || f == nil {
		t.Fatalf("got %v, %v", f, err)
	}
	return f
}

func TestOpen(t *testing.T) {
	ws := project(t, "memory: 1G\n")
	f := open(t, ws)
	if f.Path != filepath.Join(ws, FileName) || string(f.Data) != "memory: 1G\n" || f.Hash != hashOf([]byte("memory: 1G\n")) {
		t.Errorf("got %+v", f)
	}
	if f, err := Open(t.TempDir()); f != nil || err != nil {
		t.Errorf("where there is none: %v, %v", f, err)
	}
	full := strings.Repeat("#", MaxSize)
	if f := open(t, project(t, full)); len(f.Data) != MaxSize {
		t.Errorf("of a file of the greatest size %d bytes were read", len(f.Data))
	}
	outside := filepath.Join(project(t, "memory: 1G\n"), FileName)
	for name, make := range map[string]func(p string) error{
		"a link to a good file": func(p string) error { return os.Symlink(outside, p) },
		"a link to nothing":     func(p string) error { return os.Symlink("/nowhere", p) },
		"a link to itself":      func(p string) error { return os.Symlink(FileName, p) },
		"a folder":              func(p string) error { return os.Mkdir(p, 0o755) },
		"a pipe":                func(p string) error { return syscall.Mkfifo(p, 0o644) },
		"too large":             func(p string) error { return os.WriteFile(p, []byte(full+"#"), 0o644) },
		"a socket": func(p string) error {
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer syscall.Close(fd)
			wd, err := os.Getwd()
			if err != nil {
				return err
			}
			defer os.Chdir(wd)
			if err := os.Chdir(filepath.Dir(p)); err != nil { // a socket's name is short
				return err
			}
			return syscall.Bind(fd, &syscall.SockaddrUnix{Name: FileName})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws := t.TempDir()
			if err := make(filepath.Join(ws, FileName)); err != nil {
				t.Fatal(err)
			}
			if f, err := Open(ws); f != nil || bailey.CodeOf(err) != bailey.CodeUntrusted {
				t.Errorf("got %v, %v", f, err)
			}
			store := NewStore(t.TempDir())
			if s, notes, err := Load(ws, store, false); err != nil || len(notes) != 1 || s.Limits.Memory != 0 {
				t.Errorf("Load gives %+v, %v, %v", s, notes, err)
			}
			if _, _, err := Load(ws, store, true); bailey.CodeOf(err) != bailey.CodeUntrusted {
				t.Errorf("Load, required, gives %v", err)
			}
		})
	}
}

func TestTrust(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trust")
	store := NewStore(dir)
	ws := project(t, "memory: 1G\n")
	f := open(t, ws)
	if store.Trusted(f.Path, f.Hash) {
		t.Error("a file is trusted that nobody has trusted")
	}
	if err := store.Trust(f.Path, f.Hash); err != nil {
		t.Fatal(err)
	}
	if !NewStore(dir).Trusted(f.Path, f.Hash) {
		t.Error("the trusted file is not trusted")
	}
	if store.Trusted(filepath.Join(project(t, "memory: 1G\n"), FileName), f.Hash) {
		t.Error("the same text elsewhere is trusted")
	}
	other := hashOf([]byte("memory: 9G\n"))
	if store.Trusted(f.Path, other) {
		t.Error("another text is trusted")
	}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if want := fs.FileMode(0o600); err != nil || !d.IsDir() && fi.Mode() != want || d.IsDir() && fi.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %s, %v", p, fi.Mode(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the store holds %v, %v", entries, err)
	}
	// An entry moved to another's name is no trust.
	entry, err := os.ReadFile(store.file(f.Path, f.Hash))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(store.file(f.Path, other), entry, 0o600); err != nil {
		t.Fatal(err)
	}
	if store.Trusted(f.Path, other) {
		t.Error("an entry under a wrong name is trust")
	}
	for _, bad := range []string{"", "{", "null", `{"path":"/x"}`} {
		if err := os.WriteFile(store.file(f.Path, other), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if store.Trusted(f.Path, other) {
			t.Errorf("the entry %q is trust", bad)
		}
	}
	if err := store.Trust(f.Path, other); err != nil || !store.Trusted(f.Path, other) || !store.Trusted(f.Path, f.Hash) {
		t.Errorf("a second text of the file is not trusted beside the first: %v", err)
	}
	if n, err := store.Untrust(f.Path); n != 2 || err != nil || store.Trusted(f.Path, f.Hash) || store.Trusted(f.Path, other) {
		t.Errorf("forgetting gives %d, %v", n, err)
	}
	if n, err := store.Untrust(f.Path); n != 0 || err != nil {
		t.Errorf("forgetting again gives %d, %v", n, err)
	}
	if n, err := NewStore(filepath.Join(dir, "nowhere")).Untrust(f.Path); n != 0 || err != nil {
		t.Errorf("forgetting where nothing is gives %d, %v", n, err)
	}
	for _, hash := range []string{"", "x", strings.Repeat("A", 64), "../" + strings.Repeat("a", 61), strings.Repeat("a", 65)} {
		if err := store.Trust(f.Path, hash); bailey.CodeOf(err) != bailey.CodeUsage || store.Trusted(f.Path, hash) {
			t.Errorf("the hash %q gives %v", hash, err)
		}
	}
	if err := store.Trust("relative", f.Hash); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("a relative path gives %v", err)
	}
	if err := NewStore("/dev/null/x").Trust(f.Path, f.Hash); bailey.CodeOf(err) != bailey.CodeStorage {
		t.Errorf("a store that cannot be made gives %v", err)
	}
}

// TestTrustIsAtomic reads while many write: an entry is whole or not there.
func TestTrustIsAtomic(t *testing.T) {
	dir := t.TempDir()
	store := NewStore(dir)
	hash := hashOf(nil)
	if err := store.Trust("/p/0", hash); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		writers.Go(func() {
			for j := range 25 {
				if err := store.Trust(fmt.Sprintf("/p/%d", (i+j)%3), hash); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if !store.Trusted("/p/0", hash) {
					t.Error("trust was gone while it was written again")
					return
				}
			}
		}
	})
	writers.Wait()
	close(done)
	reader.Wait()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("the store holds %v, %v", entries, err)
	}
}

func TestLoad(t *testing.T) {
	store := NewStore(filepath.Join(t.TempDir(), "trust"))
	ws := project(t, "memory: 1G\nmounts: [data:/data]\nimage: img\n")
	for _, name := range []string{"data", "img"} {
		if err := os.Mkdir(filepath.Join(ws, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	noted := func(says string) {
		t.Helper()
		s, notes, err := Load(ws, store, false)
		if err != nil || len(notes) != 1 || !strings.Contains(notes[0].Text, says) || s.Limits.Memory != 0 {
			t.Errorf("got %+v, %v, %v, not a note that says %q", s, notes, err, says)
		}
		if _, _, err := Load(ws, store, true); bailey.CodeOf(err) != bailey.CodeUntrusted || !strings.Contains(err.Error(), says) {
			t.Errorf("required: got %v", err)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(ws, FileName), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	trust := func() {
		t.Helper()
		f := open(t, ws)
		if err := store.Trust(f.Path, f.Hash); err != nil {
			t.Fatal(err)
		}
	}
	noted("nobody has trusted")
	trust()
	s, notes, err := Load(ws, store, true)
	if err != nil || len(notes) != 1 || !notes[0].Fine || !strings.Contains(notes[0].Text, open(t, ws).Hash) || s.Limits.Memory != 1<<30 || s.Image != filepath.Join(ws, "img") || s.Mounts[0].Source != filepath.Join(ws, "data") {
		t.Errorf("got %+v, %v, %v", s, notes, err)
	}

	// After the trust, what it names becomes a way out.
	for _, name := range []string{"data", "img"} {
		p := filepath.Join(ws, name)
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc", p); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(ws, store, false); bailey.CodeOf(err) != bailey.CodeUntrusted || !strings.Contains(err.Error(), "leads out") {
			t.Errorf("%s -> /etc: %v", name, err)
		}
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(ws, store, false); bailey.CodeOf(err) != bailey.CodeNotFound {
			t.Errorf("without %s: %v", name, err)
		}
		if err := os.MkdirAll(filepath.Join(ws, "real"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("real", p); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(ws, store, false); err != nil {
			t.Errorf("%s -> real: %v", name, err)
		}
	}

	write("memory: 2G\n")
	noted("has changed")
	write("memory: [")
	noted("has changed") // it is not even parsed
	trust()
	if _, _, err := Load(ws, store, false); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("a trusted malformed file gives %v", err)
	}
	if _, err := store.Untrust(filepath.Join(ws, FileName)); err != nil {
		t.Fatal(err)
	}
	noted("nobody has trusted")
	if err := os.Remove(filepath.Join(ws, FileName)); err != nil {
		t.Fatal(err)
	}
	if _, notes, err := Load(ws, store, false); err != nil || len(notes) != 0 {
		t.Errorf("without a file: %v, %v", notes, err)
	}
	if _, _, err := Load(ws, store, true); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("without a file, required: %v", err)
	}
}
