package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// relay is a committed stream between a client inside and a server outside.
type relay struct {
	act     act.Act
	request policy.Request // what it was allowed for
	client  net.Conn
	server  net.Conn
	begin   time.Time

	sent, received atomic.Int64
	once           sync.Once
	reason         atomic.Pointer[string] // why it was ended before its time
	refused        atomic.Pointer[act.Refused]
}

// Sizes of what is passed on at a time, in bytes. Downloads are moved by the
// kernel (splice(2)); the chunk is how often they are counted.
const (
	uploadBuffer  = 64 << 10
	downloadChunk = 4 << 20
)

// relay passes both directions on until both have ended, one has failed, the
// policy forbids it, a limit is passed, or ctx ends; then it writes the outcome.
func (s *Server) relay(ctx context.Context, r *relay) {
	defer context.AfterFunc(ctx, func() { r.end("closed") })()
	defer s.Box.Hold(r.request, func(d act.Denial) { r.end(ended(d)) })()
	var look func([]byte) error
	if secrets := s.Box.Secrets(); secrets != nil {
		look = secrets.Opaque()
	}
	var up sync.WaitGroup
	up.Go(func() { r.finish(guarded(func() error { return r.upload(look) }), r.client, r.server) })
	r.finish(guarded(r.download), r.server, r.client)
	up.Wait()
	r.client.Close()
	r.server.Close()
	o := audit.Outcome{Sent: r.sent.Load(), Received: r.received.Load(), Duration: time.Since(r.begin)}
	if reason := r.reason.Load(); reason != nil {
		o.Error = *reason
	}
	if refused := r.refused.Load(); refused != nil {
		r.act.Refuse(refused.Reason, refused.Why)
		o.Error = refused.Reason
	}
	r.act.End(o)
}

// guarded makes an error of a fault.
func guarded(f func() error) (err error) {
	defer func() {
		if act.Caught(recover()) {
			err = act.Fault
		}
	}()
	return f()
}

// ended is the code of an outcome for a hold that was ended.
func ended(d act.Denial) string {
	if d.Reason == "closed" {
		return d.Reason
	}
	return "policy_changed"
}

// end resets both ends.
func (r *relay) end(reason string) {
	r.once.Do(func() {
		if reason != "" {
			r.reason.Store(&reason)
		}
		reset(r.client)
		reset(r.server)
	})
}

// finish passes on how one direction ended: an end of data as one, anything else
// by ending the other direction too.
func (r *relay) finish(err error, from, to net.Conn) {
	var refused *act.Refused
	switch {
	case err == nil:
		if closeWrite(to) != nil {
			r.end("reset")
		}
	case errors.As(err, &refused):
		r.refused.Store(refused)
		r.end(refused.Reason)
	case from == r.server && errors.Is(err, syscall.ECONNRESET):
		r.end("reset_by_server")
	default:
		r.end("reset")
	}
}

// upload passes on what the sandbox sends. Each piece is looked into and counted
// before it leaves.
func (r *relay) upload(look func([]byte) error) error {
	buf := make([]byte, uploadBuffer)
	for {
		n, err := r.client.Read(buf)
		if n > 0 {
			if look != nil {
				if err := look(buf[:n]); err != nil {
					return err
				}
			}
			if !r.act.Count(policy.Usage{Upload: int64(n)}) {
				return &act.Refused{Reason: policy.ReasonLimitUpload, Why: "the limit of bytes up is used up"}
			}
			if _, err := r.server.Write(buf[:n]); err != nil {
				return err
			}
			r.sent.Add(int64(n))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// download passes on what the server sends.
func (r *relay) download() error {
	for {
		n, err := io.Copy(r.client, &io.LimitedReader{R: r.server, N: downloadChunk})
		r.received.Add(n)
		if err != nil {
			return err
		}
		if n < downloadChunk {
			return nil
		}
	}
}
