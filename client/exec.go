package client

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Exec is a handle of a command in a sandbox.
type Exec struct {
	s  *Sandbox
	id string
}

// Run runs a command and gives its whole outcome. Output beyond what the spec
// keeps is left out, and Truncated says so. The command ends by itself or by
// spec.Timeout: a canceled ctx only stops waiting for it.
func (s *Sandbox) Run(ctx context.Context, spec api.ExecSpec) (api.ExecResult, error) {
	if spec.ID == "" {
		spec.ID = rand.Text()
	}
	if spec.Stdin {
		return api.ExecResult{}, bailey.Errorf(bailey.CodeUsage, "run the command", "use Start and Attach", "Run has no way to give it input")
	}
	return ask[api.ExecResult](ctx, s.c, call{method: http.MethodPost, path: s.path("/execs"), query: url.Values{"wait": {"true"}}, in: spec, again: true})
}

// Start starts a command. Its id is chosen here unless the spec has one, so that
// a call that is made again after a break starts it once.
func (s *Sandbox) Start(ctx context.Context, spec api.ExecSpec) (*Exec, error) {
	e, err := s.StartInfo(ctx, spec)
	if err != nil {
		return nil, err
	}
	return s.Exec(e.ID), nil
}

// StartInfo is Start for those who want to know what was started.
func (s *Sandbox) StartInfo(ctx context.Context, spec api.ExecSpec) (api.Exec, error) {
	if spec.ID == "" {
		spec.ID = rand.Text()
	}
	return post[api.Exec](ctx, s.c, s.path("/execs"), spec)
}

// Exec gives a handle by id. It asks nobody.
func (s *Sandbox) Exec(id string) *Exec { return &Exec{s, id} }

// Execs lists the sandbox's execs, the oldest first.
func (s *Sandbox) Execs(ctx context.Context) ([]api.Exec, error) {
	l, err := get[api.ExecList](ctx, s.c, s.path("/execs"), nil)
	return l.Execs, err
}

// ID is what the exec is found by again, from any program.
func (e *Exec) ID() string { return e.id }

func (e *Exec) path(format string, args ...string) string {
	return e.s.path("/execs/%s"+format, append([]string{e.id}, args...)...)
}

// Info looks at the exec.
func (e *Exec) Info(ctx context.Context) (api.Exec, error) {
	return get[api.Exec](ctx, e.s.c, e.path(""), nil)
}

// Wait gives the exec once it has ended.
func (e *Exec) Wait(ctx context.Context) (api.Exec, error) {
	return get[api.Exec](ctx, e.s.c, e.path("/wait"), nil)
}

// Signal sends a signal, such as SIGTERM, to all processes of the exec.
func (e *Exec) Signal(ctx context.Context, signal string) error {
	return e.s.c.json(ctx, call{method: http.MethodPost, path: e.path("/signal"), in: api.SignalRequest{Signal: signal}}, nil)
}

// Resize changes its terminal's size.
func (e *Exec) Resize(ctx context.Context, w api.Window) error {
	return e.s.c.json(ctx, call{method: http.MethodPost, path: e.path("/resize"), in: w, again: true}, nil)
}

// Write writes all of r to the command's input; with eof it is then closed. An
// input that nobody reads blocks it. When it fails nobody knows how much arrived.
func (e *Exec) Write(ctx context.Context, r io.Reader, eof bool) error {
	q := url.Values{}
	if eof {
		q.Set("eof", "true")
	}
	return e.s.c.json(ctx, call{method: http.MethodPost, path: e.path("/stdin"), query: q, body: r, size: -1}, nil)
}

// Output calls each with the exec's output from the offsets on, nil is from the
// beginning, and goes on until it has ended and all is told. It goes on after a
// broken connection and a restart of the daemon where it stopped: no byte is
// missing or told twice. The answer is the exec as it ended.
func (e *Exec) Output(ctx context.Context, from map[api.Stream]int64, each func(api.OutputEvent) error) (api.Exec, error) {
	at := map[api.Stream]int64{api.Stdout: from[api.Stdout], api.Stderr: from[api.Stderr]}
	var last api.Exec
	next := func() call {
		q := url.Values{"follow": {"true"}}
		for s, n := range at {
			q.Set(string(s), strconv.FormatInt(n, 10))
		}
		return call{method: http.MethodGet, path: e.path("/output"), query: q, again: true}
	}
	err := e.s.c.follow(ctx, next, func(b []byte) error {
		ev, err := decode[api.OutputEvent](b)
		switch {
		case err != nil:
			return err
		case ev.Error != nil:
			return ev.Error
		case ev.Exec != nil:
			last = *ev.Exec
			return errEnded
		}
		if err := each(ev); err != nil {
			return err
		}
		at[ev.Stream] = ev.Offset + int64(len(ev.Data))
		return nil
	})
	return last, err
}

// Copy writes the exec's output to stdout and stderr, either may be nil, until it
// has ended. See Output.
func (e *Exec) Copy(ctx context.Context, stdout, stderr io.Writer) (api.Exec, error) {
	return e.Output(ctx, nil, func(ev api.OutputEvent) error {
		return writeOutput(ev.Stream, ev.Data, stdout, stderr)
	})
}

func writeOutput(s api.Stream, p []byte, stdout, stderr io.Writer) error {
	w := stdout
	if s == api.Stderr {
		w = stderr
	}
	if w == nil || len(p) == 0 {
		return nil
	}
	_, err := w.Write(p)
	return err
}

// Read gives the bytes that are kept of one output stream from offset on, without
// waiting for more, and the offset of the first of them. The reader must be closed.
func (e *Exec) Read(ctx context.Context, s api.Stream, offset int64) (io.ReadCloser, int64, error) {
	resp, err := e.s.c.do(ctx, call{method: http.MethodGet, path: e.path("/%s", string(s)), query: url.Values{"offset": {strconv.FormatInt(offset, 10)}}, again: true})
	if err != nil {
		return nil, 0, err
	}
	first, err := strconv.ParseInt(resp.Header.Get(api.HeaderOffset), 10, 64)
	if err != nil {
		resp.Body.Close()
		return nil, 0, bailey.Errorf(bailey.CodeProtocol, "read the daemon's answer", "", "it does not say where the output begins")
	}
	return checked(resp), first, nil
}
