//go:build linux

package pid1

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSealWaitsForHeldPages: a page that somebody holds for longer than the kernel
// itself waits is no reason to fail.
func TestSealWaitsForHeldPages(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	const held = 600 * time.Millisecond
	began := time.Now()
	fd, err := Seal("test", func(w io.Writer) error {
		if _, err := w.Write(make([]byte, 4096)); err != nil {
			return err
		}
		var from int64
		if _, err := unix.Splice(int(w.(*os.File).Fd()), &from, pipe[1], nil, 4096, 0); err != nil { // the pipe has the page itself
			return err
		}
		time.AfterFunc(held, func() { unix.Read(pipe[0], make([]byte, 4096)) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	if time.Since(began) < held {
		t.Error("the page was not held: this test tests nothing")
	}
}
