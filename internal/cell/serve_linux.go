package cell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/internal/guest"
)

// The exit codes of a cell that stays. Any other but 0 is that of the inner program.
const (
	ExitAsked  = 0  // it was shut down, or its lease has ended
	ExitUsage  = 2  // it could not start
	ExitBroken = 70 // what is inside broke the protocol
	ExitSilent = 71 // nothing inside has answered in time
	ExitLost   = 72 // the inner program has ended well without having been asked to
)

// Options are what Serve is told beside its configuration.
type Options struct {
	// Owner is the stream to the owner, over which descriptors are passed.
	Owner *os.File
	// Lease ends the cell when the owner's end of that stream is closed.
	Lease bool
	// Errors is where it is told why the cell has ended.
	Errors io.Writer
}

// endWithin bounds the wait for the inner program to end by itself once it was asked to, or once
// nobody can be left in it.
const endWithin = 5 * time.Second

// restoredWait is how long the owner has to attach to what ran inside before.
const restoredWait = 10 * time.Second

// Serve is the life of a cell that stays. It gives the exit code; every process below this
// one has ended by then.
func Serve(cfg Config, opt Options) int {
	if err := cfg.check(); err != nil {
		return refuse(opt, err)
	}
	socket, err := guest.NewSocket(opt.Owner)
	if err != nil {
		return refuse(opt, err)
	}
	kids := adopt()
	in, err := startInner(kids, &cfg)
	if err != nil {
		return refuse(opt, err)
	}
	s := &server{cfg: &cfg, opt: opt, kids: kids, in: in, born: time.Now()}
	code := s.live(socket)
	s.end(code == ExitAsked)
	return code
}

func refuse(opt Options, err error) int {
	fmt.Fprintf(opt.Errors, "bailey-cell: %v\n", err)
	return ExitUsage
}

// server is a cell that stays.
type server struct {
	cfg   *Config
	opt   Options
	kids  *children
	in    *inner
	relay *guest.Relay
	born  time.Time
}

// live joins the owner with the inside until one of them is gone, and gives the exit code.
func (s *server) live(socket *guest.Socket) int {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.startWithin())
	defer cancel()
	opened := make(chan error, 1)
	var client *guest.Client
	go func() {
		var err error
		client, err = guest.NewClient(ctx, s.in.stream, guest.ClientOptions{Framed: true})
		opened <- err
	}()
	select {
	case err := <-opened:
		if err != nil {
			return s.silent(err)
		}
	case ws := <-s.in.ended:
		return s.ended(ws)
	}
	s.relay = guest.NewRelay(client)
	if s.cfg.Restored {
		if err := s.relay.Follow(ctx, restoredWait); err != nil {
			return s.silent(err)
		}
	}
	cancel()
	if s.cfg.Control != "" {
		c, err := listenControl(s.cfg.Control)
		if err != nil {
			return refuse(s.opt, err)
		}
		defer c.close()
		go c.serve(s)
	}
	served := make(chan error, 1)
	go func() { served <- s.relay.Serve(socket) }()
	select {
	case err := <-served:
		if !errors.Is(err, guest.ErrInside) {
			if s.opt.Lease {
				return ExitAsked
			}
			// The owner cannot come back, and the sandbox stays.
			return s.ended(<-s.in.ended)
		}
	case <-client.Done():
		<-served
	case ws := <-s.in.ended:
		client.Close()
		<-served // what has come of output is written by then
		return s.ended(ws)
	}
	if s.relay.Ending() {
		return ExitAsked
	}
	// It is not for what is inside to say how the cell ended, as long as its program says it.
	select {
	case ws := <-s.in.ended:
		return s.ended(ws)
	case <-time.After(endWithin):
	}
	fmt.Fprintf(s.opt.Errors, "bailey-cell: %v\n", client.Err())
	return ExitBroken
}

// silent tells that the conversation with the inside did not begin.
func (s *server) silent(err error) int {
	select {
	case ws := <-s.in.ended: // that is why
		return s.ended(ws)
	case <-time.After(100 * time.Millisecond):
	}
	fmt.Fprintf(s.opt.Errors, "bailey-cell: nothing inside answers: %v\n%s", err, s.in.log.last())
	return ExitSilent
}

// ended gives the exit code for an inner program that has ended.
func (s *server) ended(ws syscall.WaitStatus) int {
	if s.relay != nil && s.relay.Ending() {
		return ExitAsked
	}
	code := exitCode(ws)
	select {
	case <-s.in.log.done:
	case <-time.After(100 * time.Millisecond): // somebody else has it open
	}
	fmt.Fprintf(s.opt.Errors, "bailey-cell: %s has ended with status %d\n%s", s.cfg.Inner[0], code, s.in.log.last())
	if code == 0 {
		return ExitLost
	}
	return code
}

// end ends every process below this one. With gently the inner program has a moment to do so by
// itself, for bailey-init in it has ended or does now.
func (s *server) end(gently bool) {
	s.in.stream.Close()
	if gently && s.relay != nil && s.relay.Ending() {
		select {
		case <-s.kids.gone():
			return
		case <-time.After(endWithin):
		}
	}
	s.kids.endAll()
}
