package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// DialPort connects to a TCP port of a sandbox's loopback, waking it if need be.
// Whoever calls it has asked who may. Nobody listening is ECONNREFUSED in the
// error's chain. What goes over the connection keeps the sandbox from being idle.
func (e *Engine) DialPort(ctx context.Context, ref string, port int) (net.Conn, error) {
	u, err := e.awake(ctx, Caller{Admin: true}, ref)
	if err != nil {
		return nil, err
	}
	defer u.release()
	s, ok := u.gen.instance.(driver.Staying)
	if !ok {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, "connect to a port of the sandbox "+u.box.id, "", "its isolation level has no way in")
	}
	act, err := e.ledger.Port(u.box.id, port, "")
	if err != nil {
		return nil, err
	}
	conn, err := s.Dial(ctx, port)
	if err != nil {
		act.End(0, 0, "", err)
		if errors.Is(err, syscall.ECONNREFUSED) {
			err = bailey.Errorf(bailey.CodePortClosed, fmt.Sprintf("connect to port %d of the sandbox %s", port, u.box.id),
				fmt.Sprintf("start a server in it that listens on port %d of 127.0.0.1 or of all addresses", port), "nothing listens there: %w", syscall.ECONNREFUSED)
		}
		return nil, err
	}
	return &portConn{Conn: conn, e: e, b: u.box}, nil
}

// portConn is a connection whose bytes are activity of a sandbox.
type portConn struct {
	net.Conn
	e    *Engine
	b    *box
	told atomic.Int64 // when that was last said, in nanoseconds since 1970

	waking atomic.Bool
}

// tellEvery is how often bytes are activity: an alarm is set anew each time.
const tellEvery = 100 * time.Millisecond

func (c *portConn) moved(n int) {
	if n == 0 {
		return
	}
	now, last := c.e.clock.Now().UnixNano(), c.told.Load()
	if (now-last >= int64(tellEvery) || now < last) && c.told.CompareAndSwap(last, now) {
		c.e.busyNow(c.b)
	}
}

func (c *portConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.moved(n)
	return n, err
}

// Write wakes a sandbox that has been frozen since: it would not answer.
func (c *portConn) Write(p []byte) (int, error) {
	if c.b.record().Sandbox.State == api.StatePaused && c.waking.CompareAndSwap(false, true) {
		c.e.spawn(func(ctx context.Context) {
			defer c.waking.Store(false)
			if u, err := c.e.awaken(ctx, c.b); err == nil {
				u.release()
			} else if ctx.Err() == nil {
				c.e.log.Warn("a sandbox is not woken by what comes in", "sandbox", c.b.id, "error", err)
			}
		})
	}
	n, err := c.Conn.Write(p)
	c.moved(n)
	return n, err
}

// CloseWrite says that no more is sent, as that of a TCP connection does.
func (c *portConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}
