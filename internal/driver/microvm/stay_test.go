package microvm_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// speak opens the conversation with a sandbox that stays.
func speak(t *testing.T, f *os.File) *guest.Client {
	t.Helper()
	s, err := guest.NewSocket(f)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	c, err := guest.NewClient(ctx, s, guest.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func say(t *testing.T, c *guest.Client, id, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	r, err := c.Run(ctx, guest.ExecSpec{ID: id, Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/bin"}}, nil, 1<<20)
	if err != nil || r.End.ExitCode != 0 {
		t.Errorf("%s: %v, %+v, %s", script, err, r.End, r.Stderr)
	}
	return string(r.Stdout)
}

func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), f.Name())
}

// A sandbox that stays: commands, descriptors, ports, a pause, another process that takes it
// over, and its end.
func TestStays(t *testing.T) {
	r := newRig(t)
	s := r.spec()
	s.Entry.Command, s.Entry.Agent = nil, "bailey-init"
	in, err := r.d.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { in.Destroy(context.Background()) }()
	held := map[string]*os.File{}
	for name, f := range in.(driver.Staying).Held() {
		held[name] = dup(t, f)
	}
	c := speak(t, in.Agent())
	if out := say(t, c, "a", "echo kept >/root/f; uname -r; head -c 300000 /dev/zero | wc -c"); !strings.HasSuffix(out, "-cloud-amd64\n300000\n") {
		t.Errorf("%q", out)
	}

	// A port, and one at which nobody listens.
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if _, err := c.Exec(ctx, guest.ExecSpec{ID: "server", Argv: []string{"nc", "-l", "-p", "8000", "-e", "/bin/cat"}, Env: []string{"PATH=/bin"}}); err != nil {
		t.Fatal(err)
	}
	stay := in.(driver.Staying)
	if _, err := stay.Dial(ctx, 8001); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port at which nobody listens: %v", err)
	}
	conn, err := stay.Dial(ctx, 8000)
	for errors.Is(err, syscall.ECONNREFUSED) && ctx.Err() == nil { // it is starting
		conn, err = stay.Dial(ctx, 8000)
	}
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "to the port")
	buf := make([]byte, 11)
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "to the port" {
		t.Errorf("%q %v", buf, err)
	}
	conn.Close()

	if err := in.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	short, cancelShort := context.WithTimeout(ctx, 300*time.Millisecond)
	if c.Ping(short) == nil {
		t.Error("it answers while it is paused")
	}
	cancelShort()
	if err := in.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(ctx); err != nil {
		t.Error(err)
	}

	// Another process takes it over.
	rec := stay.Record()
	if rec.Level != bailey.IsolationMicroVM {
		t.Errorf("its record's level is %s", rec.Level)
	}
	stay.Release()
	c.Close()
	in, err = r.d.Adopt(ctx, s, rec, driver.Kept{Files: held})
	if err != nil {
		t.Fatal(err)
	}
	c = speak(t, in.Agent())
	if out := say(t, c, "b", "cat /root/f"); out != "kept\n" {
		t.Errorf("after adoption: %q", out)
	}
	if err := c.Shutdown(ctx, 0); err != nil {
		t.Error(err)
	}
	select {
	case <-in.Done():
	case <-ctx.Done():
		t.Fatal("it does not end")
	}
	if err := in.Destroy(ctx); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(r.state + "/own"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is left: %v", err)
	}
}
