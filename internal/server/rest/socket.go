package rest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// maxMessage bounds one message of a client's.
const maxMessage = 1 << 20

func (s *Server) socketRoute() {
	type socketIn struct {
		ByExec
		Offsets
	}
	add(s, op{id: "attach-exec", method: http.MethodGet, path: "/sandboxes/{id}/execs/{exec}/socket",
		summary: "join an exec's input, output, terminal size and signals, as a WebSocket", scope: access.Exec, answers: []string{"application/octet-stream"}},
		func(ctx context.Context, in *socketIn) (*huma.StreamResponse, error) {
			// What can be said as an answer is said before the protocol changes.
			if _, err := s.engine.Exec(ctx, caller(ctx), in.ID, in.Exec); err != nil {
				return nil, err
			}
			return &huma.StreamResponse{Body: func(c huma.Context) {
				s.accept(c, func(ctx context.Context, conn *websocket.Conn) {
					(&attached{s: s, conn: conn, sandbox: in.ID, exec: in.Exec}).serve(ctx, offsets{in.Stdout, in.Stderr})
				})
			}}, nil
		})
}

// accept makes a WebSocket of a request. Package access has checked its origin.
func (s *Server) accept(c huma.Context, serve func(ctx context.Context, conn *websocket.Conn)) {
	r, w := humago.Unwrap(c)
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return // Accept has answered
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxMessage)
	// The request's own context says nothing of a connection that has been taken over.
	ctx, cancel := s.streaming(context.WithoutCancel(c.Context()))
	defer cancel()
	serve(ctx, conn)
}

// attached is one connection to an exec.
type attached struct {
	s             *Server
	conn          *websocket.Conn
	sandbox, exec string
	taken         int64
	buf           []byte
}

func (a *attached) serve(ctx context.Context, at offsets) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer a.conn.CloseNow()
	defer cancel()
	reading.Go(func() {
		defer cancel()
		a.input(ctx)
	})
	reading.Go(func() {
		defer cancel()
		beats(ctx, func() error { return a.tell(ctx, api.SocketEvent{}) })
	})
	err := a.s.engine.Output(ctx, caller(ctx), a.sandbox, a.exec, at.from(), true, func(ev api.OutputEvent) error {
		if ev.Exec != nil || ev.Error != nil || ev.Dropped > 0 {
			data := ev.Data
			ev.Data = nil
			if err := a.tell(ctx, api.SocketEvent{OutputEvent: ev}); err != nil || len(data) == 0 {
				return err
			}
			ev.Data = data
		}
		return a.output(ctx, ev)
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if a.tell(ctx, api.SocketEvent{OutputEvent: api.OutputEvent{Error: newProblem(err).Err()}}) != nil {
			return
		}
	}
	a.conn.Close(websocket.StatusNormalClosure, "") // who does not answer it has gone
}

func (a *attached) write(ctx context.Context, kind websocket.MessageType, p []byte) error {
	ctx, cancel := context.WithTimeout(ctx, slow)
	defer cancel()
	return a.conn.Write(ctx, kind, p)
}

func (a *attached) tell(ctx context.Context, ev api.SocketEvent) error {
	b, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	return a.write(ctx, websocket.MessageText, b)
}

func (a *attached) output(ctx context.Context, ev api.OutputEvent) error {
	kind := byte(1)
	if ev.Stream == api.Stderr {
		kind = 2
	}
	a.buf = append(a.buf[:0], kind)
	a.buf = binary.BigEndian.AppendUint64(a.buf, uint64(ev.Offset))
	return a.write(ctx, websocket.MessageBinary, append(a.buf, ev.Data...))
}

// input takes what the client says until the connection ends. It blocks where the
// command does not read; output goes on meanwhile.
func (a *attached) input(ctx context.Context) {
	for {
		kind, p, err := a.conn.Read(ctx)
		if err != nil {
			return
		}
		if err := a.said(ctx, kind, p); err != nil {
			// An input that cannot be taken ends the connection, with the reason:
			// the client must not think that it was.
			if ctx.Err() == nil {
				a.tell(ctx, api.SocketEvent{OutputEvent: api.OutputEvent{Error: newProblem(err).Err()}})
				a.conn.Close(websocket.StatusNormalClosure, "")
			}
			return
		}
	}
}

func (a *attached) said(ctx context.Context, kind websocket.MessageType, p []byte) error {
	who, e := caller(ctx), a.s.engine
	took := func(n int, err error) error {
		if err != nil {
			return ignoreEnded(ctx, a, err)
		}
		a.taken += int64(n)
		return a.tell(ctx, api.SocketEvent{Taken: a.taken})
	}
	if kind == websocket.MessageBinary {
		return took(len(p), e.WriteStdin(ctx, who, a.sandbox, a.exec, p, false))
	}
	var c api.SocketControl
	if err := strictly(p, &c, "understand a message"); err != nil {
		return err
	}
	switch {
	case c.EOF:
		return took(1, e.WriteStdin(ctx, who, a.sandbox, a.exec, nil, true))
	case c.Resize != nil:
		return ignoreEnded(ctx, a, e.ResizeExec(ctx, who, a.sandbox, a.exec, *c.Resize))
	case c.Signal != "":
		return ignoreEnded(ctx, a, e.SignalExec(ctx, who, a.sandbox, a.exec, c.Signal))
	}
	return bailey.Errorf(bailey.CodeUsage, "understand a message", "", "it says nothing")
}

// ignoreEnded is for what came too late for a command that had just ended: the end
// of its output tells that.
func ignoreEnded(ctx context.Context, a *attached, err error) error {
	if err == nil {
		return nil
	}
	if x, look := a.s.engine.Exec(ctx, caller(ctx), a.sandbox, a.exec); look == nil && x.State == api.ExecEnded {
		return nil
	}
	return err
}

// beats says something now and then until that fails, so that either end finds out
// about the other that is gone without a word. A ping would not do: its answer is
// not read while the command's input takes nothing.
func beats(ctx context.Context, say func() error) {
	t := time.NewTicker(heartbeat)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if say() != nil {
			return
		}
	}
}
