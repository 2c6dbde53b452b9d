package client_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/server"
)

// buffer may be written and read at once.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestOutputThroughRestarts: no byte is missing or there twice.
func TestOutputThroughRestarts(t *testing.T) {
	d, c := serve(t, server.Config{})
	x, err := newSandbox(t, c).Start(t.Context(), api.ExecSpec{Args: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	var got buffer
	var want strings.Builder
	ended := make(chan error, 1)
	go func() {
		e, err := x.Copy(t.Context(), &got, nil)
		if err == nil && *e.ExitCode != 0 {
			t.Error("the end is another's")
		}
		ended <- err
	}()
	for i := range 4 {
		part := strings.Repeat(string(rune('a'+i)), 2500)
		want.WriteString(part)
		if err := x.Write(t.Context(), strings.NewReader(part), i == 3); err != nil {
			t.Fatal(err)
		}
		until(t, "the part arrives", func() bool { return got.String() == want.String() })
		if i < 3 {
			d.restart(t)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestRunThroughARestart: a command is started once, and who waits for it is told
// its end by the next daemon.
func TestRunThroughARestart(t *testing.T) {
	d, c := serve(t, server.Config{})
	s := newSandbox(t, c)
	type outcome struct {
		r   api.ExecResult
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		r, err := s.Run(t.Context(), api.ExecSpec{ID: "once", Args: []string{"sleep"}})
		done <- outcome{r, err}
	}()
	starts := func() (n int) {
		for _, call := range d.engine.Calls() {
			if strings.HasPrefix(call, "StartExec ") {
				n++
			}
		}
		return n
	}
	until(t, "it runs", func() bool { return starts() == 1 })
	d.restart(t)
	until(t, "it is asked for again", func() bool { return starts() == 2 })
	if err := s.Exec("once").Signal(t.Context(), "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	if o := <-done; o.err != nil || o.r.End == nil || o.r.End.Signal != "SIGTERM" {
		t.Errorf("%v, end %+v", o.err, o.r.End)
	}
	if l, err := s.Execs(t.Context()); err != nil || len(l) != 1 {
		t.Errorf("%d execs (%v)", len(l), err)
	}
}

// TestCreateWaitsForTheDaemon: a create that finds the daemon restarting makes one
// sandbox.
func TestCreateWaitsForTheDaemon(t *testing.T) {
	d, c := serve(t, server.Config{})
	d.stop()
	made := make(chan error, 1)
	go func() {
		_, err := c.Create(t.Context(), api.SandboxSpec{})
		made <- err
	}()
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	if l, err := c.Sandboxes(t.Context(), api.SandboxQuery{}); err != nil || len(l.Sandboxes) != 1 {
		t.Errorf("%d sandboxes (%v)", len(l.Sandboxes), err)
	}
}

func TestAttach(t *testing.T) {
	d, c := serve(t, server.Config{})
	s := newSandbox(t, c)
	x, err := s.Start(t.Context(), api.ExecSpec{Args: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	in, typed := io.Pipe()
	var out buffer
	ended := make(chan error, 1)
	go func() {
		e, err := x.Attach(t.Context(), client.Attachment{Stdin: in, Stdout: &out})
		if err == nil && *e.ExitCode != 0 {
			t.Error("the end is another's")
		}
		ended <- err
	}()
	every := string(bytes.Repeat([]byte{0, 10, 27, 255}, 20000))
	if _, err := io.WriteString(typed, every); err != nil {
		t.Fatal(err)
	}
	until(t, "all bytes come back", func() bool { return out.String() == every })
	d.restart(t)
	// What is typed while nobody is there goes on to the next daemon.
	if _, err := io.WriteString(typed, "more"); err != nil {
		t.Fatal(err)
	}
	until(t, "it goes on", func() bool { return out.String() == every+"more" })
	typed.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	x, err = s.Start(t.Context(), api.ExecSpec{Args: []string{"window"}, Pty: &api.Window{Rows: 1, Cols: 1}})
	if err != nil {
		t.Fatal(err)
	}
	resize := make(chan api.Window)
	var sizes buffer
	in, typed = io.Pipe()
	go func() {
		_, err := x.Attach(t.Context(), client.Attachment{Stdin: in, Stdout: &sizes, Resize: resize})
		ended <- err
	}()
	resize <- api.Window{Rows: 24, Cols: 80}
	until(t, "the size arrives", func() bool { return sizes.String() == "24x80\n" })
	typed.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	x, err = s.Start(t.Context(), api.ExecSpec{Args: []string{"sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	signals := make(chan string, 1)
	signals <- "SIGINT"
	if e, err := x.Attach(t.Context(), client.Attachment{Signals: signals}); err != nil || e.End.Signal != "SIGINT" {
		t.Errorf("%v, end %+v", err, e.End)
	}
	if _, err := s.Exec("none").Attach(t.Context(), client.Attachment{}); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("to nothing: %v", err)
	}
}

// broken gives a client of something that answers each request with the next of
// these.
func broken(t *testing.T, answers ...http.HandlerFunc) *client.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan http.HandlerFunc, len(answers))
	for _, a := range answers {
		next <- a
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case a := <-next:
			a(w, r)
		default:
			t.Errorf("%s %s is one request too many", r.Method, r.URL)
		}
	})}
	go srv.Serve(l)
	t.Cleanup(func() {
		srv.Close()
		if n := len(next); n > 0 {
			t.Errorf("%d answers were not asked for", n)
		}
	})
	c, err := client.New(client.Options{URL: "unix://" + socket, Patience: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// abort breaks the connection, as the end of a daemon does.
func abort(w http.ResponseWriter, _ *http.Request) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		conn.Close()
	}
}

// TestBodyIsSentOnce: what may happen once only is asked for again as long as
// nothing of it has been taken.
func TestBodyIsSentOnce(t *testing.T) {
	var got []string
	read := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // what arrives is compared
		got = append(got, string(b))
		w.WriteHeader(http.StatusNoContent)
	}
	readAndBreak := func(w http.ResponseWriter, r *http.Request) {
		io.ReadFull(r.Body, make([]byte, 1))
		abort(w, r)
	}
	c := broken(t, read, abort, abort, read, readAndBreak, abort, read, readAndBreak)
	x := c.Sandbox("a").Exec("e")
	for _, text := range []string{"one", "two"} {
		if err := x.Write(t.Context(), strings.NewReader(text), false); err != nil {
			t.Error(err)
		}
	}
	if err := x.Write(t.Context(), strings.NewReader("lost"), false); bailey.CodeOf(err) != bailey.CodeDaemonUnavailable {
		t.Errorf("nobody knows whether it arrived: %v", err)
	}
	if err := x.Signal(t.Context(), "SIGHUP"); err != nil {
		t.Error(err)
	}
	if err := x.Signal(t.Context(), "SIGHUP"); bailey.CodeOf(err) != bailey.CodeDaemonUnavailable {
		t.Errorf("nobody knows whether it arrived: %v", err)
	}
	if all := strings.Join(got, " "); all != `one two {"signal":"SIGHUP"}` {
		t.Errorf("it got %s", all)
	}
}

// TestHalfAnAnswer: an answer that is cut off is asked for again, unless it is of
// something that may happen once only.
func TestHalfAnAnswer(t *testing.T) {
	cut := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set(api.HeaderFile, "{}")
		io.WriteString(w, `{"id": "`)
		http.NewResponseController(w).Flush()
		abort(w, r)
	}
	whole := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", api.HeaderSHA256)
		w.Header().Set(api.HeaderFile, "{}")
		io.WriteString(w, `{"id":"x"}`)
		w.Header().Set(api.HeaderSHA256, "5e2b92cc57ce618dfbb54844a31775e4b95c6fb552ee6bf5a068133c12d2ad90")
	}
	c := broken(t, cut, cut, whole, cut, whole, cut)
	if i, err := c.Sandbox("a").Info(t.Context()); err != nil || i.ID != "x" {
		t.Errorf("%v, id %q", err, i.ID)
	}
	if b, err := c.Sandbox("a").Files().ReadFile(t.Context(), "/f"); err != nil || string(b) != `{"id":"x"}` {
		t.Errorf("%v, %q", err, b)
	}
	if _, err := c.Sandbox("a").Checkpoint(t.Context(), ""); bailey.CodeOf(err) != bailey.CodeDaemonUnavailable {
		t.Errorf("it may have been made: %v", err)
	}
}

// TestPatienceIsForAbsence: a daemon that goes while it has worked for long on
// something is waited for like any other.
func TestPatienceIsForAbsence(t *testing.T) {
	c := broken(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(300 * time.Millisecond) // longer than its patience
		abort(w, r)
	}, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"id":"x"}`) })
	if e, err := c.Sandbox("a").Exec("x").Wait(t.Context()); err != nil || e.ID != "x" {
		t.Errorf("%v, id %q", err, e.ID)
	}
}
