//go:build linux

package internet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

type connKey struct{}

// withConn lets a handler know the connection that a request came by.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// arrived gives the connection's event.
func arrived(r *http.Request) *Event {
	switch c := r.Context().Value(connKey{}).(type) {
	case *opened:
		return c.e
	case *recorded:
		return c.e
	case *ahead:
		return c.e
	}
	panic("a request without a connection")
}

// serve answers every request of the fake web.
func (w *World) serve(rw http.ResponseWriter, r *http.Request) {
	at := arrived(r)
	e := w.Record.add(Event{Kind: "request", Host: at.Host, To: at.To, From: at.From, SNI: at.SNI, Proto: r.Proto, Method: r.Method, URI: r.RequestURI, Header: head(r)})
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r.Body, writer(func(p []byte) { w.Record.more(e, p) })), r.Body}
	defer func() {
		if len(r.Trailer) > 0 {
			w.Record.update(e, func(e *Event) { e.Trailer = r.Trailer.Clone() })
		}
	}()
	w.mu.Lock()
	h := w.handlers[at.Host]
	w.mu.Unlock()
	switch path := r.URL.Path; {
	case h != nil:
		h.ServeHTTP(rw, r)
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		grpc(rw, r)
	case strings.HasPrefix(path, "/echo"):
		echo(rw, r)
	case path == "/redirect":
		http.Redirect(rw, r, r.URL.Query().Get("to"), http.StatusFound)
	case path == "/slow":
		slow(rw, r)
	case path == "/ws":
		w.webSocket(rw, r, at)
	case path == "/upgrade":
		w.upgrade(rw, r, at)
	case path == "/bomb":
		bomb(rw)
	case path == "/bytes":
		n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
		io.CopyN(rw, zeros{}, n)
	default:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		json.NewEncoder(rw).Encode(map[string]any{"host": at.Host, "to": at.To.String(), "method": r.Method, "uri": r.RequestURI, "proto": r.Proto, "body": len(body), "hello": "from " + at.Host})
	}
}

// head is a request's header with the Host.
func head(r *http.Request) http.Header {
	h := r.Header.Clone()
	h["Host"] = append([]string{r.Host}, h["Host"]...)
	return h
}

type writer func([]byte)

func (f writer) Write(p []byte) (int, error) { f(p); return len(p), nil }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// slow sends n lines, and waits for ms in between.
func slow(rw http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Query().Get("n"))
	ms, _ := strconv.Atoi(r.URL.Query().Get("ms"))
	for i := range n {
		fmt.Fprintf(rw, "line %d\n", i)
		http.NewResponseController(rw).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(time.Duration(ms) * time.Millisecond):
		}
	}
}

// webSocket says every message back.
func (w *World) webSocket(rw http.ResponseWriter, r *http.Request, at *Event) {
	c, err := websocket.Accept(rw, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return
	}
	defer c.CloseNow()
	for {
		kind, text, err := c.Read(context.Background())
		if err != nil {
			return
		}
		w.Record.add(Event{Kind: "websocket", Host: at.Host, To: at.To, From: at.From, Text: string(text)})
		if c.Write(context.Background(), kind, text) != nil {
			return
		}
	}
}

// upgrade accepts any protocol and records what is then said.
func (w *World) upgrade(rw http.ResponseWriter, r *http.Request, at *Event) {
	c, b, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(b, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	b.Flush()
	e := w.Record.add(Event{Kind: "upgrade", Host: at.Host, To: at.To, From: at.From})
	io.Copy(writer(func(p []byte) { w.Record.more(e, p) }), b)
}

// grpc says every message back, as a bidirectional stream of gRPC over HTTP/2
// does: messages with a prefix of five bytes, the status in a trailer.
func grpc(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/grpc")
	rw.Header().Set("Trailer", "Grpc-Status")
	rw.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(rw).Flush
	flush()
	for {
		var prefix [5]byte
		if _, err := io.ReadFull(r.Body, prefix[:]); err != nil {
			break
		}
		n := int64(prefix[1])<<24 | int64(prefix[2])<<16 | int64(prefix[3])<<8 | int64(prefix[4])
		var b bytes.Buffer
		if _, err := io.CopyN(&b, r.Body, n); err != nil {
			break
		}
		rw.Write(append(prefix[:], b.Bytes()...))
		flush()
	}
	rw.Header().Set("Grpc-Status", "0")
}
