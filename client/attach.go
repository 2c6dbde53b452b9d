package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Attachment joins a caller's streams with a command's. All fields may be nil.
type Attachment struct {
	// Stdin is the command's input; its end closes that. The command needs
	// ExecSpec.Stdin or a terminal. A read that blocks is left behind when the
	// command has ended: close Stdin if it should not be.
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Resize and Signals are sent on as they come.
	Resize  <-chan api.Window
	Signals <-chan string
	// From says where output begins; nil is the beginning.
	From map[api.Stream]int64
}

// Attach joins a's streams with the exec's until that has ended, and gives it as
// it ended. Output goes on after a broken connection where it stopped. Input goes
// on too if the command had taken all that was sent; if not, nobody knows what
// arrived, and Attach ends with the code daemon_unavailable.
func (e *Exec) Attach(ctx context.Context, a Attachment) (api.Exec, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &attached{e: e, a: a, at: map[api.Stream]int64{}}
	maps.Copy(t.at, a.From)
	if a.Stdin != nil {
		t.input = make(chan []byte)
		go t.read(ctx)
	}
	wait := newPatience(e.s.c.patience)
	for {
		began := time.Now()
		last, got, err := t.session(ctx)
		if got {
			wait = newPatience(e.s.c.patience)
		} else {
			wait.left -= time.Since(began)
		}
		switch {
		case last != nil:
			return *last, nil
		case ctx.Err() != nil:
			return api.Exec{}, context.Cause(ctx)
		case !errors.Is(err, errBroken):
			return api.Exec{}, err
		case t.open > 0:
			return api.Exec{}, bailey.Errorf(bailey.CodeDaemonUnavailable, "go on with the command's input", "the command may still run: look at its output by its id",
				"the connection broke when %d bytes were on their way", t.open)
		case !wait.more(ctx):
			return api.Exec{}, e.s.c.unavailable(errBroken)
		}
	}
}

// attached is what outlives the connections of one Attach.
type attached struct {
	e     *Exec
	a     Attachment
	at    map[api.Stream]int64
	input chan []byte // nil when there is none or it has ended

	mu   sync.Mutex
	sent int64 // bytes of input on this connection
	open int64 // of them, not taken yet; an end counts as one
}

// read hands the caller's input on; an empty slice is its end.
func (t *attached) read(ctx context.Context) {
	for {
		buf := make([]byte, 32<<10)
		n, err := t.a.Stdin.Read(buf)
		if n > 0 {
			select {
			case t.input <- buf[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			select {
			case t.input <- nil:
			case <-ctx.Done():
			}
			return
		}
	}
}

// session is one connection. got tells that the server said something on it.
func (t *attached) session(ctx context.Context) (last *api.Exec, got bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := url.Values{}
	for s, n := range t.at {
		q.Set(string(s), strconv.FormatInt(n, 10))
	}
	conn, err := t.e.s.c.socket(ctx, t.e.path("/socket"), q)
	if err != nil {
		return nil, false, err
	}
	defer conn.CloseNow()
	t.sent = 0
	var sending sync.WaitGroup
	sending.Go(func() { t.send(ctx, conn) })
	defer sending.Wait()
	defer cancel()
	for {
		kind, p, err := conn.Read(ctx)
		if err != nil {
			return nil, got, errBroken
		}
		got = true
		if kind == websocket.MessageBinary {
			if err := t.output(p); err != nil {
				return nil, got, err
			}
			continue
		}
		var ev api.SocketEvent
		if err := json.Unmarshal(p, &ev); err != nil {
			return nil, got, bailey.Errorf(bailey.CodeProtocol, "read the daemon's answer", "", "%w", err)
		}
		switch {
		case ev.Error != nil:
			return nil, got, ev.Error
		case ev.Exec != nil:
			return ev.Exec, got, nil
		case ev.Dropped > 0:
			t.at[ev.Stream] = ev.Offset
		case ev.Taken > 0:
			t.mu.Lock()
			t.open = t.sent - ev.Taken
			t.mu.Unlock()
		}
	}
}

func (t *attached) output(p []byte) error {
	if len(p) < 9 || p[0] != 1 && p[0] != 2 {
		return bailey.Errorf(bailey.CodeProtocol, "read the daemon's answer", "", "a message is no output")
	}
	s := api.Stdout
	if p[0] == 2 {
		s = api.Stderr
	}
	offset := int64(binary.BigEndian.Uint64(p[1:9]))
	if err := writeOutput(s, p[9:], t.a.Stdout, t.a.Stderr); err != nil {
		return err
	}
	t.at[s] = offset + int64(len(p)-9)
	return nil
}

// send sends what comes from the caller until ctx ends or the connection breaks.
func (t *attached) send(ctx context.Context, conn *websocket.Conn) {
	control := func(c api.SocketControl) error {
		b, err := json.Marshal(c)
		if err != nil {
			return err
		}
		return conn.Write(ctx, websocket.MessageText, b)
	}
	resize, signals := t.a.Resize, t.a.Signals
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case p := <-t.input:
			n := int64(max(len(p), 1))
			t.mu.Lock()
			t.sent, t.open = t.sent+n, t.open+n
			t.mu.Unlock()
			if len(p) > 0 {
				err = conn.Write(ctx, websocket.MessageBinary, p)
			} else {
				t.input = nil
				err = control(api.SocketControl{EOF: true})
			}
		case w, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			err = control(api.SocketControl{Resize: &w})
		case s, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			err = control(api.SocketControl{Signal: s})
		}
		if err != nil {
			conn.CloseNow()
			return
		}
	}
}

// socket opens a WebSocket. A connection that could not be made is errBroken.
func (c *Client) socket(ctx context.Context, path string, q url.Values) (*websocket.Conn, error) {
	h := http.Header{}
	c.sign(h)
	conn, resp, err := websocket.Dial(ctx, c.base+path+"?"+q.Encode(), &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: h})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			if resp.StatusCode == http.StatusServiceUnavailable {
				return nil, errBroken
			}
			return nil, problem(resp)
		}
		return nil, errBroken
	}
	conn.SetReadLimit(maxLine)
	return conn, nil
}
