package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
)

const (
	maxPorts    = 100
	longestLink = 30 * 24 * time.Hour
)

// exposed is a port that is reachable from outside.
type exposed struct {
	Port   int  `json:"port"`
	Public bool `json:"public,omitempty"`
	// Hash is the SHA-256 of the token that lets requests in, nil for a public one.
	Hash []byte `json:"hash,omitempty"`
	// Key signs links and what they are exchanged for. It is new whenever the port is
	// exposed, so that those from before are worthless.
	Key []byte `json:"key,omitempty"`
	TCP int    `json:"tcp,omitempty"` // port of the host, 0 for HTTP
}

// openPorts gets ready to have ports reached.
func (e *Engine) openPorts(context.Context) error {
	e.hooks.told = append(e.hooks.told, func(b *box, _, after *record) { e.ports.keep(b.id, after) })
	e.hooks.opened = append(e.hooks.opened, e.reopenPorts)
	e.hooks.closing = append(e.hooks.closing, e.ports.close)
	return nil
}

// Expose makes a TCP port of a sandbox's loopback reachable from outside: by HTTP at
// a name of its own, or with TCP at a port of the host. Unless it is public the
// answer has the token that lets requests in, this once. Exposed again it is as it
// is said now, and the token and links from before are worthless. Nothing is woken.
func (e *Engine) Expose(ctx context.Context, who Caller, ref string, req api.PortRequest) (api.Port, error) {
	what := fmt.Sprintf("make port %d reachable from outside", req.Port)
	if req.Port < 1 || req.Port > 65535 {
		return api.Port{}, bailey.Errorf(bailey.CodeUsage, what, "use 1 to 65535", "it is no port")
	}
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.Port{}, err
	}
	// With op held no other policy comes in force, and it is not deleted meanwhile.
	if err := b.begin(ctx); err != nil {
		return api.Port{}, err
	}
	defer b.done()
	if e.boxOf(b.id) != b {
		return api.Port{}, endedError("use the sandbox ", b.record())
	}
	switch {
	case req.TCP && !req.Public:
		return api.Port{}, bailey.Errorf(bailey.CodeUsage, what, "say public too, or leave tcp out", "TCP has no place for a token: whoever reaches the host would reach the port")
	case req.TCP && e.opt.PortTCP.zero():
		return api.Port{}, bailey.Errorf(bailey.CodeNotAvailable, what, "set ports.tcp_range in the daemon's configuration", "this daemon has no ports for TCP")
	case !req.TCP && e.portURL(b.id, req.Port) == "":
		return api.Port{}, bailey.Errorf(bailey.CodeNotAvailable, what, "start the daemon with --ports-listen, or with --listen and --domain; `bailey port SANDBOX PORT` needs neither",
			"this daemon listens nowhere for requests to ports")
	}
	p, err := policyOf(b.record().Spec)
	if err != nil {
		return api.Port{}, err
	}
	bound, err := e.portBound(ctx, p)
	if err != nil {
		return api.Port{}, err
	}
	if len(bound) > 0 && !slices.Contains(bound, req.Port) {
		return api.Port{}, bailey.Errorf(bailey.CodeForbidden, what, "choose one of them, or add it to ports in the policy", "the sandbox's policy lets only the ports %v be reached from outside", bound)
	}
	x := exposed{Port: req.Port, Public: req.Public}
	token := ""
	if !x.Public {
		token = TokenPrefix + rand.Text()
		sum := sha256.Sum256([]byte(token))
		x.Hash, x.Key = sum[:], make([]byte, 32)
		rand.Read(x.Key) // never fails
	}
	how := "private"
	if x.Public {
		how = "public"
	}
	if req.TCP {
		how = "tcp"
		if x.TCP, err = e.listenTCP(b.id, req.Port, 0); err != nil {
			return api.Port{}, err
		}
		defer func() { e.ports.settle(b.id, b.record()) }()
	}
	if err := e.ledger.Exposed(b.id, "expose", req.Port, how, who.Name); err != nil {
		return api.Port{}, err
	}
	full := false
	err = e.update(ctx, b, func(r *record) {
		list := slices.DeleteFunc(slices.Clone(r.Ports), func(o exposed) bool { return o.Port == x.Port })
		if full = len(list) >= maxPorts; !full {
			r.Ports = append(list, x)
			slices.SortFunc(r.Ports, func(a, b exposed) int { return a.Port - b.Port })
		}
	})
	switch {
	case err != nil:
		return api.Port{}, err
	case full:
		return api.Port{}, bailey.Errorf(bailey.CodeQuotaExceeded, what, "close some", "%d ports of the sandbox are reachable already", maxPorts)
	}
	out := e.showPort(b.id, x)
	out.Token = token
	return out, nil
}

// Unexpose ends that a port is reachable from outside. What is open goes on. One that
// is not reachable is no error.
func (e *Engine) Unexpose(ctx context.Context, who Caller, ref string, port int) error {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return err
	}
	if err := e.ledger.Exposed(b.id, "close", port, "", who.Name); err != nil {
		return err
	}
	return e.update(ctx, b, func(r *record) {
		r.Ports = slices.DeleteFunc(slices.Clone(r.Ports), func(o exposed) bool { return o.Port == port })
	})
}

// PortLink makes a link to a private port that is good for a while.
func (e *Engine) PortLink(ctx context.Context, who Caller, ref string, port int, d time.Duration) (api.PortLink, error) {
	what := fmt.Sprintf("make a link to port %d", port)
	if d <= 0 || d > longestLink {
		return api.PortLink{}, bailey.Errorf(bailey.CodeUsage, what, "make another when it has ended, if it takes longer", "for %v: it has to be more than 0 and at most %v", d, longestLink)
	}
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.PortLink{}, err
	}
	x, err := e.exposedOf(b.id, b.record(), port)
	if err != nil {
		return api.PortLink{}, err
	}
	if x.TCP {
		return api.PortLink{}, bailey.Errorf(bailey.CodeUsage, what, "use the address", "it is reachable by TCP, which has no links")
	}
	link := api.PortLink{URL: e.portURL(b.id, port), Until: e.clock.Now().UTC().Add(d).Truncate(time.Second)}
	if !x.Public {
		link.URL += "/?" + LinkParameter + "=" + x.sign(forLink, link.Until)
	}
	return link, nil
}

// portBound gives the ports that a policy lets be reached from outside; none is all.
func (e *Engine) portBound(ctx context.Context, p control.Policy) ([]int, error) {
	if p.Document == nil {
		return nil, nil
	}
	w, err := e.gate()
	if err != nil {
		return nil, err
	}
	c, err := w.Check(ctx, p)
	return c.Session.Ports, err
}

// within leaves out what bound does not have.
func within(list []exposed, bound []int) []exposed {
	if len(bound) == 0 {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(x exposed) bool { return !slices.Contains(bound, x.Port) })
}

func (e *Engine) portURL(id string, port int) string {
	if e.opt.PortURL == nil {
		return ""
	}
	return e.opt.PortURL(id, port)
}

func (e *Engine) showPort(id string, x exposed) api.Port {
	p := api.Port{Port: x.Port, Private: !x.Public}
	if x.TCP != 0 {
		p.URL = "tcp://" + e.opt.PortTCP.address(x.TCP)
	} else {
		p.URL = e.portURL(id, x.Port)
	}
	return p
}

func (e *Engine) showPorts(b *box) (list []api.Port) {
	for _, x := range b.record().Ports {
		list = append(list, e.showPort(b.id, x))
	}
	return list
}
