package client

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Expose makes a port reachable from outside. Unless it is public the answer has
// the token that lets requests in, this once.
func (s *Sandbox) Expose(ctx context.Context, req api.PortRequest) (api.Port, error) {
	return once[api.Port](ctx, s.c, s.path("/ports"), req)
}

// Ports lists the ports that are reachable from outside.
func (s *Sandbox) Ports(ctx context.Context) ([]api.Port, error) {
	l, err := get[api.PortList](ctx, s.c, s.path("/ports"), nil)
	return l.Ports, err
}

// ClosePort ends that a port is reachable from outside. One that is not is no error.
func (s *Sandbox) ClosePort(ctx context.Context, port int) error {
	return s.c.remove(ctx, s.path("/ports/%s", strconv.Itoa(port)), nil)
}

// PortLink makes a link to a private port that is good for a while.
func (s *Sandbox) PortLink(ctx context.Context, port int, d time.Duration) (api.PortLink, error) {
	return post[api.PortLink](ctx, s.c, s.path("/ports/%s/link", strconv.Itoa(port)), api.PortLinkRequest{For: api.Duration(d)})
}

// DialPort connects to a port of the sandbox, waking it if need be. The
// connection has CloseWrite, as a *net.TCPConn has; its deadlines, once missed,
// end it.
func (s *Sandbox) DialPort(ctx context.Context, port int) (net.Conn, error) {
	ws, err := s.c.socket(ctx, s.path("/ports/%s/connect", strconv.Itoa(port)), nil)
	if err != nil {
		if err == errBroken {
			err = s.c.unavailable(err)
		}
		return nil, err
	}
	p := &portConn{ws: ws}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return p, nil
}

// portConn is a TCP connection in a WebSocket: binary messages are its bytes, a
// text message is the end of those of one direction, with the error that ended them
// if one did.
type portConn struct {
	ws     *websocket.Conn
	ctx    context.Context
	cancel context.CancelFunc
	reader io.Reader
	over   error // of reading

	mu    sync.Mutex
	timer *time.Timer
}

func (p *portConn) Read(b []byte) (int, error) {
	for {
		if p.over != nil {
			return 0, p.over
		}
		if p.reader != nil {
			n, err := p.reader.Read(b)
			if err == io.EOF {
				p.reader, err = nil, nil
			}
			if n > 0 || err != nil {
				return n, err
			}
		}
		kind, r, err := p.ws.Reader(p.ctx)
		if err != nil {
			p.over = bailey.Errorf(bailey.CodeDaemonUnavailable, "read from the port", "", "%w", err)
			continue
		}
		if kind == websocket.MessageText {
			why, _ := io.ReadAll(io.LimitReader(r, maxProblem)) // what is there is told
			p.over = io.EOF
			if len(why) > 0 {
				p.over = bailey.Errorf(bailey.CodeSandboxLost, "read from the port", "", "%s", why)
			}
			continue
		}
		p.reader = r
	}
}

func (p *portConn) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		end := min(n+64<<10, len(b))
		if err := p.ws.Write(p.ctx, websocket.MessageBinary, b[n:end]); err != nil {
			return n, err
		}
		n = end
	}
	return len(b), nil
}

// CloseWrite tells the other end that nothing more will come.
func (p *portConn) CloseWrite() error { return p.ws.Write(p.ctx, websocket.MessageText, nil) }

func (p *portConn) Close() error {
	p.mu.Lock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.cancel()
	return p.ws.CloseNow()
}

func (p *portConn) LocalAddr() net.Addr  { return portAddr{} }
func (p *portConn) RemoteAddr() net.Addr { return portAddr{} }

// SetDeadline ends the connection at t.
func (p *portConn) SetDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if !t.IsZero() {
		p.timer = time.AfterFunc(time.Until(t), p.cancel)
	}
	return nil
}

func (p *portConn) SetReadDeadline(t time.Time) error  { return p.SetDeadline(t) }
func (p *portConn) SetWriteDeadline(t time.Time) error { return p.SetDeadline(t) }

type portAddr struct{}

func (portAddr) Network() string { return "bailey" }
func (portAddr) String() string  { return "a sandbox's port" }
