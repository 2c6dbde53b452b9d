package rest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

func (s *Server) portRoutes() {
	type portIn struct {
		BySandbox
		Port int `path:"port" minimum:"1" maximum:"65535"`
	}
	add(s, op{id: "connect-port", method: http.MethodGet, path: "/sandboxes/{id}/ports/{port}/connect",
		summary: "connect to a port of a sandbox, as a WebSocket", scope: access.Exec, answers: []string{"application/octet-stream"}},
		func(ctx context.Context, in *portIn) (*huma.StreamResponse, error) {
			// DialPort is for whoever may see the sandbox, and does not ask who that is.
			b, err := s.engine.Sandbox(ctx, caller(ctx), in.ID)
			if err != nil {
				return nil, err
			}
			conn, err := s.engine.DialPort(ctx, b.ID, in.Port)
			if err != nil {
				return nil, err
			}
			return &huma.StreamResponse{Body: func(c huma.Context) {
				defer conn.Close()
				s.accept(c, func(ctx context.Context, ws *websocket.Conn) { tunnel(ctx, ws, conn) })
			}}, nil
		})
}

func (s *Server) exposeRoutes() {
	type exposeIn struct {
		BySandbox
		Body api.PortRequest
	}
	add(s, op{id: "expose-port", method: http.MethodPost, path: "/sandboxes/{id}/ports", summary: "make a port of a sandbox reachable from outside", scope: access.Write, status: http.StatusCreated},
		func(ctx context.Context, in *exposeIn) (*answer[api.Port], error) {
			return answered(s.engine.Expose(ctx, caller(ctx), in.ID, in.Body))
		})
	add(s, op{id: "list-ports", method: http.MethodGet, path: "/sandboxes/{id}/ports", summary: "list the ports of a sandbox that are reachable from outside", scope: access.Read},
		func(ctx context.Context, in *BySandbox) (*answer[api.PortList], error) {
			b, err := s.engine.Sandbox(ctx, caller(ctx), in.ID)
			return answered(api.PortList{Ports: orEmpty(b.Ports)}, err)
		})
	type portIn struct {
		BySandbox
		Port int `path:"port" minimum:"1" maximum:"65535"`
	}
	add(s, op{id: "close-port", method: http.MethodDelete, path: "/sandboxes/{id}/ports/{port}", summary: "end that a port is reachable from outside", scope: access.Write},
		func(ctx context.Context, in *portIn) (*nothing, error) {
			return did(s.engine.Unexpose(ctx, caller(ctx), in.ID, in.Port))
		})
	type linkIn struct {
		BySandbox
		Port int `path:"port" minimum:"1" maximum:"65535"`
		Body api.PortLinkRequest
	}
	add(s, op{id: "link-port", method: http.MethodPost, path: "/sandboxes/{id}/ports/{port}/link", summary: "make a link to a private port", scope: access.Exec, status: http.StatusCreated},
		func(ctx context.Context, in *linkIn) (*answer[api.PortLink], error) {
			return answered(s.engine.PortLink(ctx, caller(ctx), in.ID, in.Port, time.Duration(in.Body.For)))
		})
}

// tunnel joins a connection with a WebSocket: binary messages are bytes, a text
// message is the end of those of its direction, with the error that ended them if
// one did.
func tunnel(ctx context.Context, ws *websocket.Conn, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var ways sync.WaitGroup
	ways.Go(func() { // in
		for {
			kind, p, err := ws.Read(ctx)
			if err != nil {
				cancel()
				return
			}
			if kind == websocket.MessageText {
				if half, ok := conn.(interface{ CloseWrite() error }); ok {
					half.CloseWrite() // of a connection that is gone the other way tells
				}
				continue
			}
			if _, err := conn.Write(p); err != nil {
				continue // what the sandbox still says is told all the same
			}
		}
	})
	buf := make([]byte, 64<<10)
	say := func(kind websocket.MessageType, p []byte) error {
		ctx, cancel := context.WithTimeout(ctx, slow)
		defer cancel()
		return ws.Write(ctx, kind, p)
	}
	for {
		n, err := conn.Read(buf)
		if n > 0 && say(websocket.MessageBinary, buf[:n]) != nil {
			break
		}
		if err != nil {
			why := ""
			if !errors.Is(err, io.EOF) {
				why = err.Error()
			}
			if ctx.Err() == nil {
				say(websocket.MessageText, []byte(why))
			}
			break
		}
	}
	// The other direction goes on until the client has ended it too, for a while.
	linger := time.AfterFunc(slow, cancel)
	defer linger.Stop()
	ways.Wait()
}
