package run

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
)

// Gate is the way out of one sandbox, through a gate's process. Without one a
// sandbox has no network.
type Gate struct {
	GateOptions
	process *GateProcess
	own     bool // the process was started for this sandbox alone

	sandbox string
	checked control.Checked
	opened  chan answer   // the gate's answer, once
	settled chan struct{} // closed when it has come
	once    sync.Once
	asks    *questions
}

// GateOptions say what a gate lets through.
type GateOptions struct {
	Policy control.Policy
	// Follow puts each new version of the document, which is a file by its name, in
	// force while the sandbox runs. One that makes no sense is not, and Notice says
	// so.
	Follow bool
	// AskTimeout is how long a rule that asks waits for an answer; 0 is what the
	// policy says, or else five minutes where the run has a terminal. Without any
	// of these nobody is asked.
	AskTimeout time.Duration
	// Denied, when given, is told of each denial that is unlike those before.
	Denied func(control.Denial)
	// Notice, when given, is told what a person should know while the command runs.
	Notice func(text string)
	// Lost, when given, is told when the gate's process ends before the sandbox
	// does, with its last words.
	Lost func(words string)
}

func (g *Gate) notice(text string) {
	if g.Notice != nil {
		g.Notice(text)
	}
}

type answer struct {
	opened *control.Opened
	err    error
}

// StartGate starts a gate's process for one sandbox, as StartGateProcess does. It
// ends with the Gate's Close.
func (h *Host) StartGate(find func() (daemon string, err error), o GateOptions) (*Gate, error) {
	p, err := h.StartGateProcess(find)
	if err != nil {
		return nil, err
	}
	g := p.Way(o)
	g.own = true
	return g, nil
}

// Denials gives what was refused to the sandbox so far.
func (g *Gate) Denials(ctx context.Context) (control.Denied, error) {
	d, err := g.process.Client.Denials(ctx, g.sandbox)
	if err != nil {
		return d, g.process.Why(err)
	}
	return d, nil
}

// Check says what the policy asks for beside what may be reached.
func (g *Gate) Check(ctx context.Context) (control.Checked, error) {
	c, err := g.process.Client.Check(ctx, g.Policy)
	if err != nil {
		return c, g.process.Why(err)
	}
	g.checked = c
	return c, nil
}

// Close ends the sandbox's way out, if it is open, and a gate that was started
// for it alone.
func (g *Gate) Close() {
	if g == nil {
		return
	}
	g.once.Do(func() {
		if g.asks != nil {
			g.asks.close()
		}
		if g.own {
			g.process.Close()
			return
		}
		if g.opened != nil && g.process.way(g.sandbox) == g {
			ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
			defer cancel()
			select {
			case <-g.settled:
			case <-ctx.Done():
			}
			g.process.Client.Close(ctx, g.sandbox) // it was closed already, or never opened
			g.process.put(g.sandbox, nil)
		}
	})
}

// openGate asks for the sandbox's way out, in the background: the gate reads its
// secrets and gives up its rights meanwhile. b.way waits for the answer.
func (b *builder) openGate(ctx context.Context) {
	g := b.req.Gate
	if g == nil {
		return
	}
	g.sandbox = b.run.ID()
	g.opened, g.settled = make(chan answer, 1), make(chan struct{})
	g.asks = newQuestions(b.host.Folder.Path(), b.req.Capture == nil && b.req.Streams.Layout().Pty, g.notice)
	o := control.Open{Sandbox: g.sandbox, Level: b.req.Level.String(), Policy: g.Policy,
		Ask: control.Ask{Possible: true, Attended: g.asks.attended, Timeout: g.AskTimeout}}
	g.process.put(g.sandbox, g)
	go func() {
		opened, err := g.process.Open(ctx, o, trustRoot(b.req), nil)
		g.opened <- answer{opened, err}
		close(g.settled)
	}()
}

// way waits for the gate and gives what the sandbox needs for it; nil for one
// that has no network.
func (b *builder) way() (*control.Opened, error) {
	g := b.req.Gate
	if g == nil {
		return nil, nil
	}
	b.host.trace("gate")
	a := <-g.opened
	if a.err != nil {
		return nil, a.err
	}
	b.run.Record.Policy, b.run.Record.Egress = a.opened.Policy, egressTransparent
	for _, n := range a.opened.Notes {
		g.notice(n)
	}
	return a.opened, nil
}

// egressTransparent says in a record that everything which a sandbox sends ends
// at the gate, whether its programs know of it or not.
const egressTransparent = "transparent"

// nameServer gives the address at which names are answered inside.
func (b *builder) nameServer() netip.Addr {
	if b.req.Gate == nil && (b.staying == nil || b.staying.Way == nil) {
		return netip.Addr{}
	}
	return driver.GateAddr4
}

// gateEnv puts the variables of the way out into an environment. A person's own
// --env wins over those, but for a placeholder: a value in its place would be what
// the gate is there to keep out.
func (b *builder) gateEnv(env []string, w *control.Opened) ([]string, error) {
	if w == nil {
		return env, nil
	}
	own := map[string]bool{}
	for _, kv := range b.req.SetEnv {
		name, _, _ := strings.Cut(kv, "=")
		own[name] = true
	}
	for _, s := range b.policy().Secrets {
		if name, _, _ := strings.Cut(s, "@"); own[name] {
			return nil, bailey.Errorf(bailey.CodeUsage, "set "+name, "leave --env "+name+" out", "it is a secret's placeholder inside")
		}
	}
	values := map[string]string{}
	var names []string
	put := func(kv string) {
		name, value, _ := strings.Cut(kv, "=")
		if _, there := values[name]; !there {
			names = append(names, name)
		}
		values[name] = value
	}
	for _, kv := range env {
		put(kv)
	}
	for _, kv := range slices.Concat(ProxyVariables(), w.Env) {
		if name, _, _ := strings.Cut(kv, "="); !own[name] {
			put(kv)
		}
	}
	slices.Sort(names)
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = name + "=" + values[name]
	}
	return out, nil
}

// policy is what the way out was opened with.
func (b *builder) policy() control.Policy {
	if b.staying != nil {
		return b.staying.Policy
	}
	return b.req.Gate.Policy
}

// placeTrust puts the files by which programs trust the gate into the
// sandbox's root, and never onto the host.
func (b *builder) placeTrust(w *control.Opened) error {
	if w == nil {
		return nil
	}
	at := HostTrust(b.root.Places)
	if b.req.Level.OwnRoot() {
		at = RootTrust(trustRoot(b.req))
	}
	places, err := TrustPlaces(w.Files, at, func(name string, content []byte, mode os.FileMode) (string, error) {
		dir, err := b.scratch("trust", 0o755)
		if err != nil {
			return "", err
		}
		file := dir.join(name)
		return file.there, os.WriteFile(file.here, content, mode)
	})
	b.root.Places = append(b.root.Places, places...)
	return err
}

// attach hands the sandbox's listeners to the gate and watches over it.
func (b *builder) attach(ctx context.Context, in driver.Instance) error {
	g := b.req.Gate
	if g == nil {
		return nil
	}
	out := in.Outlet()
	if out == nil {
		return bailey.Errorf(bailey.CodeInternal, "connect the sandbox with the gate", "", "it has no outlet")
	}
	err := g.process.Client.Attach(ctx, g.sandbox, out.TCP, out.UDP)
	out.TCP.Close()
	out.UDP.Close()
	if err != nil {
		return g.process.Why(err)
	}
	follow, stop := context.WithCancel(context.Background())
	if p := b.followed(); p != "" {
		go g.follow(follow, p, g.checked.Session)
	}
	go func() {
		defer stop()
		select {
		case <-in.Done():
		case <-g.process.Client.Done():
			select {
			case <-in.Done(): // both at once: the run is being ended
				return
			default:
			}
			if g.Lost != nil {
				g.Lost(g.process.Words())
			}
		}
	}()
	return nil
}

// answerWithin is how long a gate has to close a sandbox's way out.
const answerWithin = 5 * time.Second

// Egress is what a run's way out was used for.
type Egress struct {
	Policy string `json:"policy"` // digest of the policy that was in force at first
	// Lost: the gate's process ended before the command did. From then on nothing
	// got out, and what is counted here is not all.
	Lost bool `json:"gate_lost,omitempty"`
	control.Closed
	Notes []string `json:"notes,omitempty"`
}

// closeGate ends the sandbox's way out and says what it was used for.
func (b *builder) closeGate(w *control.Opened) *Egress {
	g := b.req.Gate
	if g == nil || w == nil {
		return nil
	}
	e := &Egress{Policy: w.Policy, Notes: w.Notes}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	var err error
	e.Closed, err = g.process.Client.Close(ctx, g.sandbox)
	g.process.put(g.sandbox, nil)
	if err != nil {
		g.process.Kill() // it is gone, or hangs
		e.Lost = true
		e.Notes = append(e.Notes, fmt.Sprint(errors.Unwrap(err)))
	} else if g.own {
		g.process.Client.Hangup() // its log goes to the disk meanwhile; Close waits for it
	}
	return e
}
