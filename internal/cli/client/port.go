package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// portCommand listens on this machine and leads each connection to a port of the
// sandbox, which the first one wakes.
func portCommand(inv *invocation) (int, error) {
	address := inv.Flags.String("address", "127.0.0.1", "where to listen")
	var out outward
	out.set(inv.Flags)
	args, err := inv.some(1, 2, "SANDBOX [LOCAL:]PORT")
	if err != nil {
		return 0, err
	}
	if is, err := out.asked(args); is || err != nil {
		if err == nil {
			err = inv.outward(out, args)
		}
		return 0, err
	}
	if len(args) != 2 {
		return 0, bailey.Errorf(bailey.CodeUsage, "run bailey port", "call it as bailey port SANDBOX [LOCAL:]PORT, or with --ls", "it was given no port")
	}
	local, inside, both := strings.Cut(args[1], ":")
	if !both {
		inside, local = local, "0"
	}
	port, err := portNumber(inside)
	if err != nil {
		return 0, err
	}
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	s := c.Sandbox(args[0])
	if _, err := s.Info(inv.ctx); err != nil {
		return 0, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(*address, local))
	if err != nil {
		return 0, bailey.Errorf(bailey.CodeUsage, "listen on port "+terminal.Printable(local), "choose another: LOCAL:PORT", "%w", err)
	}
	defer context.AfterFunc(inv.ctx, func() { l.Close() })()
	if err := inv.print(map[string]string{"address": l.Addr().String()}, func(w io.Writer) {
		fmt.Fprintf(w, "%s leads to port %d of %s\n", l.Addr(), port, terminal.Printable(args[0]))
	}); err != nil {
		return 0, err
	}
	var joined sync.WaitGroup
	defer joined.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if inv.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return 0, nil
			}
			return 0, bailey.Errorf(bailey.CodeInternal, "listen", "", "%w", err)
		}
		joined.Go(func() {
			defer conn.Close()
			if err := join(inv.ctx, conn, s, port); err != nil {
				inv.Say("%s", terminal.Printable(err.Error()))
			}
		})
	}
}

// join copies both ways until both have ended.
func join(ctx context.Context, conn net.Conn, s *client.Sandbox, port int) error {
	far, err := s.DialPort(ctx, port)
	if err != nil {
		return err
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() { conn.Close(); far.Close() })()
	var back sync.WaitGroup
	back.Go(func() { half(conn, far) })
	half(far, conn)
	back.Wait()
	return nil
}

// half copies one way and passes the end on.
func half(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if c, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		c.CloseWrite() // who is gone does not wait for an end
		return
	}
	to.Close()
}
