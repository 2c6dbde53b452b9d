package gate

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/names"
	"github.com/bailey-sandbox/bailey/internal/gate/stream"
	"github.com/bailey-sandbox/bailey/policy"
)

// version is a policy with the grants that belong to it. An act has one.
type version struct {
	policy  *policy.Policy
	secrets act.Secrets
	limited bool // something of it counts
}

func newVersion(p *policy.Policy, secrets act.Secrets) *version {
	v := &version{policy: p, secrets: secrets}
	if p != nil {
		v.limited = p.Limits() != (policy.RuleLimits{})
		for _, r := range p.Rules() {
			v.limited = v.limited || r.Limits != (policy.RuleLimits{})
		}
	}
	return v
}

// audits tells that what the policy denies passes, and is recorded.
func (v *version) audits() bool { return v.policy != nil && v.policy.Mode() == policy.Audit }

func (v *version) digest() string {
	if v.policy == nil {
		return ""
	}
	return v.policy.Digest()
}

// Box is one sandbox's way out.
type Box struct {
	id, session string
	server      *Server
	names       *names.Table
	streams     *stream.Server
	askTimeout  time.Duration
	unattended  bool

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // all that runs for the sandbox
	once   sync.Once      // Close

	version  atomic.Pointer[version]
	counters counters
	holds    holds
	refused  refusedNames
	chosen   chosenNames
	pace     pace
	denials  chan *act.Denial
	dropped  atomic.Int64
	totals   totals
	telling  atomic.Bool // changed will tell soon

	asks asks

	mu     sync.Mutex
	closed bool
	served func() // lets go of the listeners, and returns when what came through them has ended; nil without any
}

var _ act.Box = (*Box)(nil)

// memory is how many bytes the gate keeps for one sandbox at a time, beside what
// each of its connections takes anyway.
const memory = 128 << 20

func newBox(s *Server, sb Sandbox) *Box {
	b := &Box{id: sb.ID, session: sb.Session, server: s, names: sb.Names, askTimeout: sb.AskTimeout, unattended: sb.Unattended}
	if b.names == nil {
		b.names = names.NewTable()
	}
	if b.askTimeout == 0 {
		b.askTimeout = s.options.AskTimeout
	}
	b.ctx, b.cancel = context.WithCancel(act.WithMemory(context.Background(), act.NewMemory(memory)))
	b.version.Store(newVersion(sb.Policy, sb.Secrets))
	b.restore(sb.State)
	b.streams = &stream.Server{
		Box: b, Web: sb.Web, SniffTimeout: s.options.SniffTimeout, Limit: s.options.Connections,
		DNS: &names.Responder{Box: b, Names: b.names, Search: sb.Search},
	}
	if s.options.Denied != nil {
		b.denials = make(chan *act.Denial, 64)
		b.work.Go(func() { b.tell(s.options.Denied) })
	}
	return b
}

// Serve takes the sandbox's listeners (driver.Outlet) and serves them until
// Close, or until others take their place: then what came through them ends. It takes over
// the files whatever it returns. Either may be nil.
func (b *Box) Serve(tcp, udp *os.File) error {
	const what = "serve a sandbox's listeners"
	var l *net.TCPListener
	var u *net.UDPConn
	var failed []error
	if tcp != nil {
		made, err := net.FileListener(tcp)
		tcp.Close()
		if l, _ = made.(*net.TCPListener); l == nil {
			failed = append(failed, err, errors.New("the first is not a TCP listener"))
			if made != nil {
				made.Close()
			}
		}
	}
	if udp != nil {
		made, err := net.FilePacketConn(udp)
		udp.Close()
		if u, _ = made.(*net.UDPConn); u == nil {
			failed = append(failed, err, errors.New("the second is not a UDP socket"))
			if made != nil {
				made.Close()
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		failed = append(failed, errors.New("the sandbox's box is closed"))
	}
	if len(failed) > 0 {
		if l != nil {
			l.Close()
		}
		if u != nil {
			u.Close()
		}
		return bailey.Errorf("gate_listener", what, "", "%w", errors.Join(failed...))
	}
	if b.served != nil {
		b.served()
	}
	ctx, cancel := context.WithCancel(b.ctx)
	var done sync.WaitGroup
	run := func(serve func()) {
		done.Add(1)
		b.work.Go(func() { defer done.Done(); serve() })
	}
	if l != nil {
		run(func() { b.streams.Serve(ctx, l) })
	}
	if u != nil {
		context.AfterFunc(ctx, func() { u.Close() })
		run(func() {
			defer u.Close()
			b.streams.DNS.ServeUDP(ctx, u)
		})
	}
	b.served = func() { cancel(); done.Wait() }
	return nil
}

// Leave lets go of the listeners and returns when what came through them has
// ended. The box waits for others.
func (b *Box) Leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.served != nil {
		b.served()
		b.served = nil
	}
}

// Update puts a new policy version and its grants in force. New acts are judged
// by it at once, and open streams that it forbids end within a second. What a
// person has allowed for the session was allowed under the old one, so it is
// asked again.
func (b *Box) Update(p *policy.Policy, secrets act.Secrets) {
	v := newVersion(p, secrets)
	b.holds.mu.Lock()
	defer b.holds.mu.Unlock()
	old := b.version.Swap(v)
	if old.digest() != v.digest() {
		b.counters.forget()
		b.asks.forget()
		b.refused.flush(b)
	}
	b.holds.enforce(b, v)
}

// Secrets implements act.Box.
func (b *Box) Secrets() act.Secrets { return b.version.Load().secrets }

// Dial implements act.Box.
func (b *Box) Dial(ctx context.Context, a act.Act, rule *policy.Rule) (net.Conn, error) {
	e := a.(*egress)
	if refused := b.resolves(e, rule); refused != nil {
		a.Refuse(refused.Reason, refused.Why)
		return nil, refused
	}
	c, addr, err := b.server.options.Dialer.Dial(ctx, e.to, rule)
	var refused *act.Refused
	if errors.As(err, &refused) {
		a.Refuse(refused.Reason, refused.Why)
		return nil, refused
	}
	if err != nil {
		return nil, err
	}
	e.dialled(addr.String())
	return c, nil
}

// Close ends all that the sandbox has open and returns when nothing of it runs
// any more.
func (b *Box) Close() {
	b.once.Do(func() {
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		b.cancel()
		b.holds.endAll(b)
	})
	b.work.Wait()
	b.refused.flush(b)
	b.names.Close()
	b.server.remove(b)
}
