package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/bailey-sandbox/bailey"
)

const (
	// heartbeat is how long a stream says nothing at most: proxies and clients
	// take a longer silence for a dead connection.
	heartbeat = 15 * time.Second
	// firstWord is when a stream without an event begins all the same, so that the
	// client knows that it is connected.
	firstWord = 200 * time.Millisecond
	// slow is how long a client may take for one write.
	slow = 30 * time.Second
)

// events sends values as server-sent events or as lines of JSON. Its methods may
// be called by any number of goroutines at once.
type events struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	lines bool

	mu    sync.Mutex
	begun bool
	err   error // of writing
}

// stream answers with what run sends. An error before the first event is the
// answer itself; last makes the event of one that comes later, nil when the
// stream just breaks off, which a client takes for a reason to come back.
func (s *Server) stream(c huma.Context, lines bool, run func(ctx context.Context, send func(id string, v any) error) error, last func(*bailey.Error) any) {
	r, w := humago.Unwrap(c)
	if a := r.Header.Get("Accept"); strings.Contains(a, "application/x-ndjson") {
		lines = true
	} else if strings.Contains(a, "text/event-stream") {
		lines = false
	}
	e := &events{w: w, rc: http.NewResponseController(w), lines: lines}
	// What is said while a body is still coming must not cost any of it: a server of
	// HTTP/1 throws away what it has not read when an answer begins.
	e.rc.EnableFullDuplex() // every connection of ours can
	ctx, cancel := s.streaming(c.Context())
	defer cancel()
	defer e.rc.SetWriteDeadline(time.Time{}) // the connection serves other requests
	var beating sync.WaitGroup
	beating.Go(func() { e.beat(ctx) })
	err := run(ctx, e.send)
	cancel()
	beating.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil && e.err == nil:
		e.begin()
	case !e.begun:
		WriteProblem(w, err)
	case e.err != nil || c.Context().Err() != nil || s.closing.Err() != nil:
		panic(http.ErrAbortHandler) // so that it does not look complete
	default:
		if last == nil {
			panic(http.ErrAbortHandler)
		}
		p := newProblem(err)
		if e.write("", last(p.Err())) != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// streaming gives a context that also ends when the server closes.
func (s *Server) streaming(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	return ctx, func() { stop(); cancel() }
}

func (e *events) begin() {
	if e.begun {
		return
	}
	e.begun = true
	t := "text/event-stream"
	if e.lines {
		t = "application/x-ndjson"
	}
	e.w.Header().Set("Content-Type", t)
	e.w.Header().Set("Cache-Control", "no-store")
	e.w.Header().Set("X-Accel-Buffering", "no") // some proxies would wait for more
	e.w.WriteHeader(http.StatusOK)
}

// send sends one event; id is what a reader that comes back names.
func (e *events) send(id string, v any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.write(id, v)
}

func (e *events) write(id string, v any) error {
	if e.err != nil {
		return e.err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return bailey.Errorf(bailey.CodeInternal, "write an event", "", "%w", err)
	}
	var b []byte
	if e.lines {
		b = append(text, '\n')
	} else {
		if id != "" {
			b = append(append(append(b, "id: "...), id...), '\n')
		}
		b = append(append(append(b, "data: "...), text...), "\n\n"...)
	}
	return e.put(b)
}

func (e *events) put(b []byte) error {
	e.begin()
	e.rc.SetWriteDeadline(time.Now().Add(slow)) // every connection of ours can
	if _, e.err = e.w.Write(b); e.err == nil {
		e.err = e.rc.Flush()
	}
	return e.err
}

// beat says something now and then while there is nothing to say.
func (e *events) beat(ctx context.Context) {
	t := time.NewTimer(firstWord)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		t.Reset(heartbeat)
		e.mu.Lock()
		sign := ": \n\n"
		if e.lines {
			sign = "\n"
		}
		err := e.put([]byte(sign))
		e.mu.Unlock()
		if err != nil {
			return
		}
	}
}
