package gvisor_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/guest"
)

// What commands have of their terminals and pipes is the same behind gVisor's kernel.
func TestCommandsThroughTheCell(t *testing.T) {
	r := newRig(t)
	_, c := r.stays(r.spec())
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	env := []string{"PATH=/bin", "PS1=READY "}
	t.Run("a terminal", func(t *testing.T) {
		p, err := c.Exec(ctx, guest.ExecSpec{ID: "tty", Argv: []string{"sh", "-i"}, Env: env, Terminal: &guest.Window{Rows: 33, Cols: 77}})
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		until := func(want string) {
			t.Helper()
			got.Reset()
			buf := make([]byte, 4096)
			for !strings.Contains(got.String(), want) {
				n, err := p.Stdout().Read(buf)
				got.Write(buf[:n])
				if err != nil {
					t.Fatalf("%v after %q, waiting for %q", err, got.String(), want)
				}
			}
		}
		until("READY ")
		io.WriteString(p.Stdin(), "stty size\n")
		until("33 77\r\nREADY ")
		if err := p.Resize(ctx, guest.Window{Rows: 44, Cols: 88}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(p.Stdin(), "stty size\n")
		until("44 88\r\nREADY ")
		// What is typed before a program is in the foreground is read in another mode.
		io.WriteString(p.Stdin(), "echo u''p; cat\n")
		until("\nup\r\n")
		io.WriteString(p.Stdin(), "hello\n")
		until("hello\r\nhello\r\n")
		io.WriteString(p.Stdin(), "\x03")
		until("READY ")
		io.WriteString(p.Stdin(), "echo code=$?\n")
		until("code=130\r\nREADY ")
		io.WriteString(p.Stdin(), "exit 3\n")
		if end, err := p.Wait(ctx); err != nil || end.ExitCode != 3 {
			t.Fatal(end, err)
		}
		if _, err := io.ReadAll(p.Stdout()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		want := bytes.Repeat([]byte("0123456789\x00abcdef"), 300_000)
		res, err := c.Run(ctx, guest.ExecSpec{ID: "cat", Argv: []string{"cat"}, Env: env}, bytes.NewReader(want), 64<<20)
		if err != nil || !bytes.Equal(res.Stdout, want) {
			t.Fatal(len(res.Stdout), err)
		}
	})
	t.Run("nobody reads", func(t *testing.T) {
		out, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Exec(ctx, guest.ExecSpec{ID: "yes", Argv: []string{"yes"}, Env: env, Files: &[3]*os.File{nil, w, nil}})
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		out.Read(make([]byte, 1))
		out.Close()
		if end, err := p.Wait(ctx); err != nil || end.Signal != syscall.SIGPIPE && end.ExitCode != 1 {
			t.Fatalf("%+v %v", end, err)
		}
	})
	t.Run("many", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				res, err := c.Run(ctx, guest.ExecSpec{ID: fmt.Sprint("m", i), Argv: []string{"sh", "-c", "echo $0", fmt.Sprint(i)}, Env: env}, nil, 100)
				if err != nil || string(res.Stdout) != fmt.Sprintln(i) {
					t.Errorf("%d: %q %v", i, res.Stdout, err)
				}
			}()
		}
		wg.Wait()
	})
	t.Run("files", func(t *testing.T) {
		want := bytes.Repeat([]byte("x"), 8<<20)
		if _, err := c.WriteFile(ctx, "/root/big", bytes.NewReader(want), guest.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		var tar bytes.Buffer
		if err := c.TarOut(ctx, "/root/big", &tar, guest.TarOptions{}); err != nil || tar.Len() < len(want) {
			t.Fatal(tar.Len(), err)
		}
	})
	t.Run("a background child", func(t *testing.T) {
		p, err := c.Exec(ctx, guest.ExecSpec{ID: "bg", Argv: []string{"sh", "-c", "echo now; (while [ ! -e /root/go ]; do sleep 0.05; done; echo later) & exit 4"}, Env: env})
		if err != nil {
			t.Fatal(err)
		}
		if end, err := p.Wait(ctx); err != nil || end.ExitCode != 4 {
			t.Fatal(end, err)
		}
		if _, err := c.WriteFile(ctx, "/root/go", strings.NewReader(""), guest.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if all, err := io.ReadAll(p.Stdout()); err != nil || string(all) != "now\nlater\n" {
			t.Fatalf("%q %v", all, err)
		}
	})
}
