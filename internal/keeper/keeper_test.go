package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// pair is a keeper's end in this process, without a daemon, and a Client of it.
func pair(t testing.TB) (*server, *Client) {
	t.Helper()
	shelf, err := openShelf(filepath.Join(t.TempDir(), "ended"))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{shelf: shelf, asked: make(chan struct{}, 1), served: make(chan struct{})}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	go s.serve(fds[0], s.served)
	c, err := NewClient(os.NewFile(uintptr(fds[1]), "keeper"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		<-s.served
		unix.Close(fds[0])
		for _, k := range shelf.list() {
			shelf.drop(k.ID, nil)
		}
	})
	return s, c
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func openFiles(t testing.TB, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// What is put is given back as the same file, until it is dropped.
func TestPutGetDrop(t *testing.T) {
	ctx := context.Background()
	_, c := pair(t)
	r, w := pipe(t)
	if err := c.Put(ctx, "box", 4711, map[string]*os.File{"lease": w, "exec/1/stdout": r}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	list, err := c.List(ctx)
	if err != nil || len(list) != 1 || list[0].ID != "box" || list[0].Pid != 4711 || !slices.Equal(list[0].Names, []string{"exec/1/stdout", "lease"}) || list[0].Ended {
		t.Fatalf("%v %+v", err, list)
	}
	files, err := c.Get(ctx, "box", "lease", "nothing")
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", err, files)
	}
	if _, err := io.WriteString(files["lease"], "x"); err != nil {
		t.Fatal(err)
	}
	files["lease"].Close()
	if n, err := r.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	// One of the same name takes its place, and what nobody holds is closed.
	_, other := pipe(t)
	if err := c.Put(ctx, "box", 0, map[string]*os.File{"lease": other}); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Error("the one before is still open", n, err)
	}
	if list, _ := c.List(ctx); list[0].Pid != 4711 || len(list[0].Names) != 2 {
		t.Errorf("%+v", list)
	}
	for range 2 {
		if err := c.Drop(ctx, "box", "lease"); err != nil {
			t.Fatal(err)
		}
	}
	if list, _ := c.List(ctx); !slices.Equal(list[0].Names, []string{"exec/1/stdout"}) {
		t.Errorf("%+v", list)
	}
	for range 2 {
		if err := c.Drop(ctx, "box"); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := c.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("%v %+v", err, list)
	}
	if _, err := c.Get(ctx, "box"); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Error(err)
	}
}

// Many descriptors of many sandboxes, by many at once: nothing is mixed up, and
// nothing is left open.
func TestMany(t *testing.T) {
	ctx := context.Background()
	_, c := pair(t)
	const boxes, each = 40, 3*maxFiles + 5
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	before := openFiles(t, os.Getpid())
	files := map[string]*os.File{}
	for i := range each {
		files[fmt.Sprintf("exec/%s-%d/stdout", strings.Repeat("x", 100), i)] = null
	}
	var wg sync.WaitGroup
	for i := range boxes {
		wg.Go(func() {
			id := fmt.Sprint("box-", i)
			if err := c.Put(ctx, id, i+1, files); err != nil {
				t.Error(err)
				return
			}
			got, err := c.Get(ctx, id)
			if err != nil || len(got) != each {
				t.Errorf("%v, %d descriptors", err, len(got))
			}
			for _, f := range got {
				f.Close()
			}
		})
	}
	wg.Wait()
	list, err := c.List(ctx)
	if err != nil || len(list) != boxes {
		t.Fatalf("%v, %d sandboxes", err, len(list))
	}
	for _, k := range list {
		if len(k.Names) != each {
			t.Errorf("%s has %d", k.ID, len(k.Names))
		}
		if err := c.Drop(ctx, k.ID); err != nil {
			t.Error(err)
		}
	}
	if after := openFiles(t, os.Getpid()); after != before {
		t.Errorf("%d files were open, and %d are", before, after)
	}
}

func TestRefusals(t *testing.T) {
	ctx := context.Background()
	s, c := pair(t)
	r, _ := pipe(t)
	for _, id := range []string{"", "..", ".x", "a/b", "a b", strings.Repeat("x", maxID+1)} {
		if err := c.Put(ctx, id, 1, map[string]*os.File{"x": r}); bailey.CodeOf(err) != bailey.CodeProtocol {
			t.Errorf("id %q: %v", id, err)
		}
	}
	for _, name := range []string{"", "a b", "a\n", `a"`, strings.Repeat("x", maxName+1)} {
		if err := c.Put(ctx, "box", 1, map[string]*os.File{name: r}); bailey.CodeOf(err) != bailey.CodeProtocol {
			t.Errorf("name %q: %v", name, err)
		}
	}
	if err := c.Put(ctx, "box", -1, nil); bailey.CodeOf(err) != bailey.CodeProtocol {
		t.Error(err)
	}
	closed, _ := pipe(t)
	closed.Close()
	if err := c.Put(ctx, "box", 1, map[string]*os.File{"x": closed}); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Error(err)
	}
	many := map[string]*os.File{}
	for i := range maxHeld + 1 {
		many[fmt.Sprint(i)] = r
	}
	if err := c.Put(ctx, "much", 1, many); err == nil {
		t.Error("there is no bound")
	}
	s.shelf.drop("much", nil)
	if _, err := c.Wait(ctx, "none"); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.List(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := c.List(ctx); err != nil {
		t.Errorf("and afterwards it is deaf: %v", err)
	}
}

// Whatever the daemon sends, it gets an answer, and descriptors that mean nothing
// are closed.
func TestNonsense(t *testing.T) {
	s := &server{asked: make(chan struct{}, 1), served: make(chan struct{})}
	var err error
	if s.shelf, err = openShelf(filepath.Join(t.TempDir(), "ended")); err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	go s.serve(fds[0], s.served)
	r, _ := pipe(t)
	null := int(r.Fd())
	buf, oob := newBuffers()
	before := openFiles(t, os.Getpid())
	var lots []int
	for range 3 * maxFiles {
		lots = append(lots, null)
	}
	for _, tc := range []struct {
		text string
		fds  []int
	}{
		{"x", nil}, {"{}", nil}, {`{"n":1,"op":"put","id":"a"}`, []int{null}}, {`{"n":1,"op":"put","id":"a","names":["x","y"]}`, []int{null}},
		{`{"n":1,"op":"list"}{}`, nil}, {`{"n":1,"op":"list","id":"a"}`, nil}, {`{"n":1,"op":"fly"}`, nil}, {`{"n":1,"op":"get","id":"a","new":1}`, nil},
		{`{"n":-1,"op":"list"}`, nil}, {`{"n":1,"op":"list"}`, lots[:2]}, {`{"n":1,"op":"put","id":"a","names":["x"]}`, lots}, {strings.Repeat(" ", maxMessage+100), lots[:1]},
	} {
		var rights []byte
		if len(tc.fds) > 0 {
			rights = unix.UnixRights(tc.fds...)
		}
		if err := unix.Sendmsg(fds[1], []byte(tc.text), rights, nil, 0); err != nil {
			t.Fatal(err)
		}
		n, got, err := receive(fds[1], buf, oob)
		if err != nil || len(got) > 0 {
			t.Fatal(err, got)
		}
		if a, err := parseAnswer(buf[:n], 0); err != nil || a.Error == nil {
			t.Errorf("%.40q: %v %+v", tc.text, err, a)
		}
	}
	if after := openFiles(t, os.Getpid()); after != before {
		t.Errorf("%d files were open, and %d are", before, after)
	}
	if s.spoken.Load() {
		t.Error("that counts as having come up")
	}
	unix.Close(fds[1])
	<-s.served
	unix.Close(fds[0])
}

// The end of the keeper ends every request, and Done says so.
func TestDone(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(os.NewFile(uintptr(fds[1]), "keeper"))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error)
	go func() {
		_, err := c.List(context.Background())
		asked <- err
	}()
	buf, oob := newBuffers()
	if _, _, err := receive(fds[0], buf, oob); err != nil { // it has asked
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := c.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	unix.Close(fds[0])
	if err := <-asked; bailey.CodeOf(err) != bailey.CodeInternal {
		t.Error(err)
	}
	<-c.Done()
	if err := c.Put(context.Background(), "a", 1, nil); bailey.CodeOf(err) != bailey.CodeInternal {
		t.Error(err)
	}
}

// The status of a sandbox is written down, and is another keeper's to tell; what
// is no status is removed.
func TestEndedIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ended")
	s, err := openShelf(dir)
	if err != nil {
		t.Fatal(err)
	}
	pid := os.Getpid()
	for _, id := range []string{"a", "b"} {
		if err := s.put(id, pid, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.drop("b", nil)
	if err := s.reaped(pid, startOf(pid)+1, 9); err != nil { // another process of its number
		t.Fatal(err)
	}
	if _, _, err := s.status("a"); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Error(err)
	}
	if err := s.reaped(pid, startOf(pid), 7<<8); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"odd": "x", "..x": "{}", "new": `{"new":1}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = openShelf(dir); err != nil {
		t.Fatal(err)
	}
	if list := s.list(); len(list) != 1 || list[0].ID != "a" || !list[0].Ended || syscall.WaitStatus(list[0].Status).ExitStatus() != 7 {
		t.Errorf("%+v", list)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%v", files)
	}
	if st, alive, err := s.status("a"); st != 7<<8 || alive || err != nil {
		t.Error(st, alive, err)
	}
	if s.alive() != 0 {
		t.Error("it counts as alive")
	}
	s.drop("a", nil)
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("%v", files)
	}
	// The next generation of a sandbox takes the end of the one before back.
	s.put("c", pid, nil, nil)
	s.reaped(pid, startOf(pid), 1)
	s.put("c", os.Getppid(), nil, nil)
	if list := s.list(); list[0].Ended {
		t.Errorf("%+v", list)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("%v", files)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"n":1,"op":"put","id":"a","pid":3,"names":["x"]}`), 1)
	f.Add([]byte(`{"n":1,"op":"list"}`), 0)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		r, err := parseRequest(b, n)
		if err != nil {
			return
		}
		if r.Op == opPut && n != len(r.Names) || r.Op != opPut && n != 0 {
			t.Errorf("%d descriptors for %+v", n, r)
		}
		if r.ID != "" && filepath.Base(r.ID) != r.ID {
			t.Errorf("%q is a path", r.ID)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"n":1,"more":true,"names":["x"],"kept":[{"id":"a"}],"error":{"code":"busy"}}`), 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if a, err := parseAnswer(b, n); err == nil && len(a.Names) != n {
			t.Errorf("%d descriptors for %+v", n, a)
		}
	})
}
