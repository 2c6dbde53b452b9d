package stream

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/names"
	"github.com/bailey-sandbox/bailey/policy"
)

// open judges a stream and prepares it: what it gives is that of an act.Open.
func (s *Server) open(ctx context.Context, via act.Via, to policy.Authority) (func(net.Conn), *act.Denial, error) {
	to, known := s.named(to)
	a := s.Box.Begin(act.Stream, via, to)
	if !known {
		a.Refuse("unknown_address", "no name has this address: look the name up again")
		return nil, refusal(a), nil
	}
	if a2, literal := to.Host().Addr(); literal && names.Gate(a2) {
		a.Refuse("gate_loop", "this is the gate's own address")
		return nil, refusal(a), nil
	}
	d := a.Judge(ctx, policy.Request{Stage: policy.Connect, To: to})
	switch {
	case d.Verdict == policy.Deny:
		return nil, refusal(a), nil
	case d.Verdict == policy.Allow && d.Rule != nil && d.Rule.Protocol == policy.TCP:
		return s.raw(ctx, a, to, d.Rule)
	}
	return func(c net.Conn) {
		if c == nil {
			return // nothing was recorded, since nothing happened
		}
		s.sniffed(ctx, a, c, to, via)
	}, nil, nil
}

// raw connects a stream of a rule for TCP.
func (s *Server) raw(ctx context.Context, a act.Act, to policy.Authority, rule *policy.Rule) (func(net.Conn), *act.Denial, error) {
	a.Record().Scheme = string(policy.TCP)
	begin := time.Now()
	up, err := s.start(ctx, a, rule)
	if err != nil {
		var refused *act.Refused
		if errors.As(err, &refused) {
			d := a.Denial()
			return nil, &d, nil
		}
		return nil, nil, err
	}
	return func(c net.Conn) {
		if c == nil {
			reset(up)
			a.End(audit.Outcome{Duration: time.Since(begin), Error: "canceled"})
			return
		}
		s.relay(ctx, &relay{
			act: a, request: policy.Request{Stage: policy.Connect, To: to, Scheme: policy.TCP},
			client: c, server: up, begin: begin,
		})
	}, nil, nil
}

// start counts an allowed stream, connects it and records it. When that fails it
// is recorded all the same: as a denial, if the error is an *act.Refused, and
// else as an allowed one that came to nothing.
func (s *Server) start(ctx context.Context, a act.Act, rule *policy.Rule) (net.Conn, error) {
	if !a.Count(policy.Usage{Requests: 1}) {
		a.Refuse(policy.ReasonLimitRequests, "the limit of streams is used up")
		a.Commit()
		return nil, &act.Refused{Reason: policy.ReasonLimitRequests, Why: "the limit of streams is used up"}
	}
	begin := time.Now()
	up, err := s.Box.Dial(ctx, a, rule)
	var refused *act.Refused
	switch {
	case errors.As(err, &refused):
		a.Commit() // Dial has refused the act; nothing passes in any case
	case err != nil:
		if a.Commit() == nil {
			a.End(audit.Outcome{Duration: time.Since(begin), Error: act.FailureOf(err)})
		}
	default:
		if err = a.Commit(); err != nil {
			reset(up)
		}
	}
	if err != nil {
		return nil, err
	}
	return up, nil
}

// named puts the name in for a synthetic address. Others stay as they are;
// known is false for a synthetic address without a name.
func (s *Server) named(to policy.Authority) (_ policy.Authority, known bool) {
	a, literal := to.Host().Addr()
	if !literal || !names.Synthetic(a) || names.Gate(a) {
		return to, true
	}
	h, ok := s.DNS.Names.Lookup(a)
	if !ok {
		return to, false
	}
	return policy.At(h, to.Port()), true
}

// refusal records a denied act and gives its denial.
func refusal(a act.Act) *act.Denial {
	a.Commit() // if it fails, nothing passes all the same
	d := a.Denial()
	return &d
}
