package terminal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func pipePair(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// ends are both sides of a Relay over pipes.
type ends struct {
	typed, shown, shownErr *os.File // the person's
	stdin, stdout, stderr  *os.File // the command's
}

func startPipes(t *testing.T, person Streams, opts Options) (*Relay, ends) {
	t.Helper()
	var e ends
	var inside Inside
	if person.In == nil {
		person.In, e.typed = pipePair(t)
	}
	if person.Out == nil {
		e.shown, person.Out = pipePair(t)
	}
	if person.Err == nil {
		e.shownErr, person.Err = pipePair(t)
	}
	e.stdin, inside.In = pipePair(t)
	inside.Out, e.stdout = pipePair(t)
	inside.Err, e.stderr = pipePair(t)
	if got := person.Layout(); got != (Layout{ErrPipe: true}) {
		t.Fatalf("layout of pipes is %+v", got)
	}
	before := runtime.NumGoroutine()
	r, err := Start(person, inside, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Finish(0)
		for end := time.Now().Add(patience); runtime.NumGoroutine() > before; runtime.Gosched() {
			if time.Now().After(end) {
				buf := make([]byte, 1<<16)
				t.Errorf("goroutines are left:\n%s", buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
	return r, e
}

// pattern is n bytes of which none is like its neighbours.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 2654435761 >> 13)
	}
	return b
}

func collect(f *os.File) <-chan []byte {
	c := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(f)
		c <- b
	}()
	return c
}

func TestPipesCopyAll(t *testing.T) {
	data := pattern(5 << 20)
	appending, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(source, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		out  *os.File // nil: a pipe
		file bool     // input from a file
	}{{"pipes", nil, false}, {"file", plain, true}, {"file for appending", appending, false}} {
		t.Run(c.name, func(t *testing.T) {
			person := Streams{Out: c.out}
			if c.file {
				if person.In, err = os.Open(source); err != nil {
					t.Fatal(err)
				}
				defer person.In.Close()
			}
			r, e := startPipes(t, person, Options{OutputLimit: 3 * int64(len(data))})
			if e.typed != nil {
				go func() { e.typed.Write(data); e.typed.Close() }()
			}
			got := collect(e.stdin)
			if in := <-got; !bytes.Equal(in, data) {
				t.Fatalf("the command read %d bytes, not the %d that were typed", len(in), len(data))
			}
			var shown <-chan []byte
			if e.shown != nil {
				shown = collect(e.shown)
			}
			shownErr := collect(e.shownErr)
			go func() { e.stderr.Write(data[:1<<20]); e.stderr.Close() }()
			go func() { e.stdout.Write(data); e.stdout.Close() }()
			<-r.Ended()
			res := r.Finish(patience)
			if res.Bytes != int64(len(data)+1<<20) || res.LimitReached || res.ReaderGone {
				t.Errorf("result %+v", res)
			}
			r.person.Err.Close()
			if b := <-shownErr; !bytes.Equal(b, data[:1<<20]) {
				t.Errorf("standard error has %d bytes", len(b))
			}
			if shown != nil {
				r.person.Out.Close()
				if b := <-shown; !bytes.Equal(b, data) {
					t.Errorf("standard output has %d bytes", len(b))
				}
				return
			}
			b, err := os.ReadFile(c.out.Name())
			if err != nil || !bytes.Equal(b, data) {
				t.Errorf("the file has %d bytes, %v", len(b), err)
			}
		})
	}
}

func TestPipesLimit(t *testing.T) {
	const limit = 100_000
	for _, c := range []struct {
		name     string
		out, err int // bytes written
		reached  bool
	}{
		{"below", limit - 1, 0, false},
		{"exactly", limit, 0, false},
		{"one more", limit + 1, 0, true},
		{"both together, exactly", limit / 2, limit / 2, false},
		{"both together", limit/2 + 1, limit / 2, true},
		{"far beyond", 10 * limit, 10 * limit, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := make(chan bool, 10)
			r, e := startPipes(t, Streams{}, Options{OutputLimit: limit, OnLimit: func() { calls <- true }})
			out, errs := collect(e.shown), collect(e.shownErr)
			write := func(f *os.File, n int) {
				f.SetWriteDeadline(time.Now().Add(patience))
				f.Write(pattern(n)) // fails where the other end is closed at the limit
				f.Close()
			}
			go write(e.stdout, c.out)
			go write(e.stderr, c.err)
			<-r.Ended()
			res := r.Finish(0)
			r.person.Out.Close()
			r.person.Err.Close()
			total := len(<-out) + len(<-errs)
			if int64(total) != res.Bytes || total != min(limit, c.out+c.err) || res.LimitReached != c.reached || len(calls) != map[bool]int{true: 1}[c.reached] {
				t.Errorf("%d bytes shown, result %+v, %d calls", total, res, len(calls))
			}
		})
	}
}

// The command has ended, and nothing more comes from the person's side either,
// though it stays open.
func TestPipesBlockedInput(t *testing.T) {
	r, e := startPipes(t, Streams{}, Options{})
	e.stdout.Close()
	e.stderr.Close()
	begin := time.Now()
	r.Finish(patience)
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("Finish took %v", took)
	}
}

// A process that the command left behind keeps the other end open.
func TestPipesLeftOpen(t *testing.T) {
	r, e := startPipes(t, Streams{}, Options{})
	out := collect(e.shown)
	io.WriteString(e.stdout, "last words")
	r.Finish(0)
	r.person.Out.Close()
	if got := string(<-out); got != "last words" {
		t.Errorf("got %q", got)
	}
}

func TestPipesReaderGone(t *testing.T) {
	r, e := startPipes(t, Streams{}, Options{})
	e.shown.Close()
	e.stdout.SetWriteDeadline(time.Now().Add(patience))
	var err error
	for err == nil {
		_, err = e.stdout.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the command's write fails with %v", err)
	}
	e.stderr.Close()
	e.stdout.Close()
	if res := r.Finish(patience); !res.ReaderGone {
		t.Errorf("result %+v", res)
	}
}

// The command does not read its input, or closes it.
func TestPipesUnreadInput(t *testing.T) {
	r, e := startPipes(t, Streams{}, Options{})
	go e.typed.Write(pattern(1 << 20))
	e.stdout.Close()
	e.stderr.Close()
	r.Finish(patience)
	e.typed.Close()

	r, e = startPipes(t, Streams{}, Options{})
	e.stdin.Close()
	io.WriteString(e.typed, "nobody reads this")
	<-r.inputEnd
	e.stdout.Close()
	e.stderr.Close()
	r.Finish(patience)
}

// A reader that pauses for ever holds Finish up, until Abandon.
func TestPipesAbandon(t *testing.T) {
	r, e := startPipes(t, Streams{}, Options{})
	e.stdout.SetWriteDeadline(time.Now().Add(patience))
	go func() {
		e.stdout.Write(pattern(1 << 20))
		e.stdout.Close()
	}()
	e.stderr.Close()
	// Until the reader's pipe is full, and there is more in the command's.
	for {
		room, err := wait(descriptor(r.person.Out), true, -1, 0)
		if err != nil {
			t.Fatal(err)
		}
		more, err := wait(descriptor(r.inside.Out), false, -1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !room.ready && more.ready {
			break
		}
		runtime.Gosched()
	}
	finished := make(chan Result)
	go func() { finished <- r.Finish(0) }()
	select {
	case <-finished:
		t.Fatal("Finish lost what the reader has not taken")
	case <-time.After(200 * time.Millisecond):
	}
	r.Abandon()
	<-finished
}
