package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// Options are a dialer's; the zero value is fit for use.
type Options struct {
	// Servers are name servers to ask, in place of those in /etc/resolv.conf.
	Servers []netip.AddrPort
	// Classify says what kind of address one is: Public, or the name of a range
	// that is not. nil is the function Classify; another one is for tests, whose
	// internet lies on loopback. It cannot make public what is Metadata or Gate.
	Classify func(netip.Addr) string
	// Own gives this host's addresses; nil asks the kernel. If it fails, nothing
	// is dialled.
	Own func() ([]netip.Addr, error)
	// Timeout bounds resolving and connecting together; 0 is 20 seconds.
	Timeout time.Duration
}

// Dialer implements act.Dialer.
type Dialer struct {
	resolver net.Resolver
	classify func(netip.Addr) string
	own      func() ([]netip.Addr, error)
	timeout  time.Duration
	next     atomic.Uint32 // server to ask
}

var _ act.Dialer = (*Dialer)(nil)

// headStart is how long one address has before the next is tried beside it (RFC
// 8305 recommends 250 ms), and maxAddresses how many are tried.
const (
	headStart    = 250 * time.Millisecond
	maxAddresses = 8
)

// New makes a dialer.
func New(o Options) *Dialer {
	d := &Dialer{classify: o.Classify, own: o.Own, timeout: o.Timeout}
	if d.classify == nil {
		d.classify = Classify
	}
	if d.own == nil {
		d.own = hostAddresses
	}
	if d.timeout == 0 {
		d.timeout = 20 * time.Second
	}
	// The resolver of the C library reads 2130706433 and 0x7f.1 as addresses;
	// Go's own does not.
	d.resolver.PreferGo = true
	if len(o.Servers) > 0 {
		d.resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			server := o.Servers[int(d.next.Add(1)-1)%len(o.Servers)]
			return new(net.Dialer).DialContext(ctx, network, server.String())
		}
	}
	return d
}

// Dial implements act.Dialer. An error is an *act.Refused or an
// *act.Unreachable.
func (d *Dialer) Dial(ctx context.Context, to policy.Authority, rule *policy.Rule) (net.Conn, netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	candidates, err := d.candidates(ctx, to, rule)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	return d.race(ctx, to, candidates, rule)
}

// candidates gives the addresses behind a name that may be dialled. Others that
// a name server mixed in are left out; only if none is left, the name is refused.
func (d *Dialer) candidates(ctx context.Context, to policy.Authority, rule *policy.Rule) ([]netip.AddrPort, error) {
	found, err := d.resolve(ctx, to.Host())
	if err != nil {
		return nil, &act.Unreachable{Code: "name_unresolved", Why: fmt.Sprintf("the name %s cannot be resolved", to.Host()), Err: err}
	}
	own, err := d.own()
	if err != nil {
		return nil, &act.Unreachable{Code: "unreachable", Why: "this host's own addresses cannot be told from others", Err: err}
	}
	var refused *act.Refused
	var list []netip.AddrPort
	for _, a := range found {
		if r := d.check(a, own, rule); r != nil {
			refused = r
			continue
		}
		list = append(list, netip.AddrPortFrom(a, to.Port()))
	}
	switch {
	case len(list) > 0:
		list = alternate(list)
		return list[:min(len(list), maxAddresses)], nil
	case refused != nil:
		return nil, refused
	}
	return nil, &act.Unreachable{Code: "name_unresolved", Why: fmt.Sprintf("the name %s has no address", to.Host())}
}

// resolve gives the addresses of a host. The final dot keeps the resolver from
// trying the host's own search list.
func (d *Dialer) resolve(ctx context.Context, h policy.Host) ([]netip.Addr, error) {
	if a, literal := h.Addr(); literal {
		return []netip.Addr{a.Unmap()}, nil
	}
	// RFC 6761, section 6.3: these are this host, and no name server is asked.
	if h.String() == "localhost" || strings.HasSuffix(h.String(), ".localhost") {
		return []netip.Addr{netip.IPv6Loopback(), netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
	}
	list, err := d.resolver.LookupNetIP(ctx, "ip", h.String()+".")
	for i, a := range list {
		list[i] = a.Unmap()
	}
	return list, err
}

// alternate orders addresses for a race: families take turns, as found within each.
func alternate(list []netip.AddrPort) []netip.AddrPort {
	var six, four, out []netip.AddrPort
	for _, a := range list {
		if a.Addr().Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	for len(six)+len(four) > 0 {
		if len(six) > 0 {
			out, six = append(out, six[0]), six[1:]
		}
		if len(four) > 0 {
			out, four = append(out, four[0]), four[1:]
		}
	}
	return out
}

// attempt is how one address went.
type attempt struct {
	conn net.Conn
	addr netip.AddrPort
	err  error
}

// race connects to the first address that answers. Each has a head start before
// the next; one that fails gives way at once.
func (d *Dialer) race(ctx context.Context, to policy.Authority, list []netip.AddrPort, rule *policy.Rule) (net.Conn, netip.AddrPort, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan attempt)
	timer := time.NewTimer(0)
	defer timer.Stop()
	running, started := 0, 0
	var first error
	for started < len(list) || running > 0 {
		var start <-chan time.Time
		if started < len(list) {
			start = timer.C
		}
		select {
		case <-start:
			go func(a netip.AddrPort) {
				c, err := d.connect(ctx, a, rule)
				results <- attempt{c, a, err}
			}(list[started])
			started, running = started+1, running+1
			timer.Reset(headStart)
		case r := <-results:
			running--
			if r.err == nil {
				cancel()
				go discard(results, running)
				return r.conn, r.addr, nil
			}
			if first == nil {
				first = r.err
			}
			timer.Reset(0)
		}
	}
	return nil, netip.AddrPort{}, failure(to, first)
}

// discard closes what wins too late.
func discard(results <-chan attempt, running int) {
	for range running {
		if r := <-results; r.conn != nil {
			r.conn.Close()
		}
	}
}

// connect dials one checked address, and checks what the kernel is given.
func (d *Dialer) connect(ctx context.Context, a netip.AddrPort, rule *policy.Rule) (net.Conn, error) {
	dialer := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true},
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			final, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			own, err := d.own()
			if err != nil {
				return err
			}
			if final.Port() != a.Port() || final.Addr().Unmap() != a.Addr().Unmap() {
				return fmt.Errorf("the socket goes to %s, not to %s", final, a)
			}
			if r := d.check(final.Addr().Unmap(), own, rule); r != nil {
				return r
			}
			return nil
		},
	}
	return dialer.DialContext(ctx, "tcp", a.String())
}

// failure makes the error of a race that nobody won.
func failure(to policy.Authority, err error) error {
	var refused *act.Refused
	if errors.As(err, &refused) {
		return refused
	}
	u := &act.Unreachable{Code: "unreachable", Why: fmt.Sprintf("%s cannot be reached", to), Err: err}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		u.Code, u.Why = "connect_refused", fmt.Sprintf("%s refuses the connection", to)
	case errors.Is(err, context.Canceled):
		u.Code, u.Why = "canceled", "the attempt was given up"
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT):
		u.Code, u.Why = "connect_timeout", fmt.Sprintf("%s does not answer", to)
	}
	return u
}
