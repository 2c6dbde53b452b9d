package e2b

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// The Connect protocol, JSON codec: what a stream is made of. An envelope is a byte of
// flags, the length in four bytes, and so many bytes.

const (
	flagCompressed = 1
	flagEnd        = 2
	// maxMessage bounds one message, in bytes.
	maxMessage = 16 << 20
)

// readEnvelope reads one envelope. io.EOF is the end between two.
func readEnvelope(r io.Reader, most int) (flags byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return 0, nil, err
	}
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return 0, nil, cut(err)
	}
	if head[0]&^(flagCompressed|flagEnd) != 0 {
		return 0, nil, connectErrorf("invalid_argument", "an envelope has flags %#x", head[0])
	}
	if head[0]&flagCompressed != 0 {
		return 0, nil, connectErrorf("unimplemented", "an envelope is compressed, which was not agreed on")
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > uint32(most) {
		return 0, nil, connectErrorf("resource_exhausted", "a message of %d bytes is larger than %d", n, most)
	}
	// A length alone costs nothing: memory grows with what comes.
	payload, err = io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return 0, nil, err
	}
	if len(payload) < int(n) {
		return 0, nil, cut(io.ErrUnexpectedEOF)
	}
	return head[0], payload, nil
}

func cut(err error) error {
	return connectErrorf("invalid_argument", "an envelope ends too early: %v", err)
}

// connectError is an error as clients of RPCs read it.
type connectError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *connectError) Error() string { return e.Message }

func connectErrorf(code, format string, args ...any) *connectError {
	return &connectError{code, fmt.Sprintf(format, args...)}
}

// connectStatus gives each code of Connect its HTTP status.
var connectStatus = map[string]int{
	"invalid_argument": 400, "failed_precondition": 400, "out_of_range": 400, "unauthenticated": 401, "permission_denied": 403, "not_found": 404,
	"already_exists": 409, "aborted": 409, "resource_exhausted": 429, "canceled": 499, "unimplemented": 501, "unavailable": 503, "deadline_exceeded": 504,
}

func (e *connectError) status() int {
	if s := connectStatus[e.Code]; s != 0 {
		return s
	}
	return http.StatusInternalServerError
}

// connectCodes gives Bailey's codes those of Connect; the others are internal.
var connectCodes = map[bailey.Code]string{
	bailey.CodeUsage: "invalid_argument", bailey.CodeCommandNotFound: "not_found", bailey.CodeNotFound: "not_found", bailey.CodeUnauthorized: "unauthenticated",
	bailey.CodeForbidden: "permission_denied", bailey.CodeConflict: "failed_precondition", bailey.CodeTooLarge: "resource_exhausted",
	bailey.CodeQuotaExceeded: "resource_exhausted", bailey.CodeRateLimited: "resource_exhausted", bailey.CodeDiskFull: "resource_exhausted",
	bailey.CodeNotAvailable: "unimplemented", bailey.CodeBusy: "unavailable", bailey.CodeSandboxEnded: "unavailable", bailey.CodeSandboxLost: "unavailable",
	bailey.CodeDaemonUnavailable: "unavailable", bailey.CodeSandboxRestarted: "aborted",
}

func connectErrorOf(err error) *connectError {
	var done *connectError
	if errors.As(err, &done) {
		return done
	}
	if code := connectCodes[bailey.CodeOf(err)]; code != "" {
		return &connectError{code, err.Error()}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return connectErrorf("deadline_exceeded", "the request's time is over")
	case errors.Is(err, context.Canceled):
		return connectErrorf("canceled", "the request was ended before it was done")
	}
	return &connectError{"internal", err.Error()}
}

func isJSON(header, want string) bool {
	t, _, err := mime.ParseMediaType(header)
	return err == nil && t == want
}

// stream is an answer of many messages.
type stream struct {
	c      *call
	ctx    context.Context // ends with the request and the server
	cancel context.CancelFunc

	mu    sync.Mutex
	begun bool
	ended bool
	last  time.Time // of the last message
}

// openStream reads the one message that a stream of answers begins with.
func openStream[T any](c *call) (*stream, T, *connectError) {
	var in T
	if t := c.r.Header.Get("Content-Type"); !isJSON(t, "application/connect+json") {
		return nil, in, connectErrorf("unknown", "Bailey speaks the Connect protocol in JSON, not %q", t)
	}
	_, payload, err := readEnvelope(c.r.Body, maxMessage)
	if err != nil {
		return nil, in, connectErrorOf(err)
	}
	if err := json.Unmarshal(payload, &in); err != nil {
		return nil, in, connectErrorf("invalid_argument", "the request is not what it should be: %v", err)
	}
	st := &stream{c: c}
	ctx, cancel := context.WithCancel(c.ctx())
	stop := context.AfterFunc(c.s.closing, cancel)
	st.ctx, st.cancel = ctx, func() {
		stop()
		cancel()
	}
	return st, in, nil
}

// send sends one message at once.
func (st *stream) send(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return st.envelope(0, text)
}

func (st *stream) envelope(flags byte, text []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended {
		return io.ErrClosedPipe
	}
	if !st.begun {
		st.begun = true
		st.c.w.Header().Set("Content-Type", "application/connect+json")
		st.c.w.Header().Set("X-Accel-Buffering", "no")
		st.c.w.WriteHeader(http.StatusOK)
	}
	st.ended = flags&flagEnd != 0
	buf := make([]byte, 5, 5+len(text))
	buf[0] = flags
	binary.BigEndian.PutUint32(buf[1:], uint32(len(text)))
	if _, err := st.c.w.Write(append(buf, text...)); err != nil {
		return err
	}
	st.last = time.Now()
	return http.NewResponseController(st.c.w).Flush()
}

// keepAlive sends a message whenever nothing was sent for as long as the client has
// asked for, until the function it gives is called.
func (st *stream) keepAlive(message any) (stop func()) {
	every := 90 * time.Second
	if n, err := strconv.ParseUint(st.c.r.Header.Get("Keepalive-Ping-Interval"), 10, 16); err == nil && n > 0 {
		every = time.Duration(n) * time.Second
	}
	ctx, cancel := context.WithCancel(st.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-t.C:
				st.mu.Lock()
				idle := now.Sub(st.last)
				st.mu.Unlock()
				if idle >= every/2 && st.send(message) != nil {
					return
				}
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// end ends a stream, with an error if there is one. A stream that is broken under the
// client, because its sandbox or this daemon ends, is cut: only then clients look
// whether the sandbox is there still.
func (st *stream) end(err error) {
	st.cancel()
	last := struct {
		Error *connectError `json:"error,omitempty"`
	}{}
	if err != nil {
		last.Error = connectErrorOf(err)
		if last.Error.Code == "unavailable" || last.Error.Code == "canceled" {
			st.mu.Lock()
			begun := st.begun
			st.mu.Unlock()
			if begun {
				panic(http.ErrAbortHandler)
			}
		}
	}
	text, merr := json.Marshal(last)
	if merr == nil {
		_ = st.envelope(flagEnd, text) // whoever asked has gone
	}
}
