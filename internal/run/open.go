package run

import (
	"context"
	"errors"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// Sandbox is a sandbox that stays while this process holds it, with
// bailey-init as its first process.
type Sandbox struct {
	*guest.Client
	Instance driver.Instance
	Run      *folder.Run // locked
	Env      []string    // what commands get if they say nothing else
	Workdir  string
	Notes    []hostview.Note
	Egress   *Egress // once it is closed; nil without a way out

	b      *builder
	held   chan struct{} // of a sandbox made ahead: closed by Take
	closed sync.Once
	end    bailey.End
	err    error
}

// Open makes a sandbox that stays. agent is the path of the bailey-init
// program; req.Command, Streams and Capture are not used.
func (h *Host) Open(ctx context.Context, req Request, agent string) (*Sandbox, error) {
	b, err := h.begin(req)
	if err != nil {
		req.Gate.Close()
		return nil, err
	}
	b.openGate(ctx)
	s := &Sandbox{Run: b.run, Workdir: b.req.Workdir, b: b}
	if err := s.start(ctx, agent); err != nil {
		req.Gate.Close()
		b.abandon()
		return nil, err
	}
	return s, nil
}

func (s *Sandbox) start(ctx context.Context, agent string) (err error) {
	spec, notes, err := s.b.spec(ctx)
	if err != nil {
		return err
	}
	s.Notes = notes
	s.Env = spec.Env
	spec.Entry.Agent = agent
	if s.b.req.Ahead {
		if err := s.b.untouched(spec); err != nil {
			return err
		}
		s.held = make(chan struct{})
		spec.Held = s.held
		spec.Workdir = "/" // its own may lie in the workspace; each command enters it
	}
	if !s.b.req.Ahead {
		if err := s.b.logLife("create"); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, s.b.logLife("destroy"))
			}
		}()
	}
	if s.Instance, err = s.b.host.Driver.Create(ctx, spec); err != nil {
		return err
	}
	if err := s.b.attach(ctx, s.Instance); err != nil {
		s.Instance.Destroy(context.WithoutCancel(ctx))
		return err
	}
	socket, err := guest.NewSocket(s.Instance.Agent())
	if err == nil {
		s.Client, err = guest.NewClient(ctx, socket, guest.ClientOptions{})
	}
	if err != nil {
		s.Instance.Destroy(context.WithoutCancel(ctx))
		return bailey.Errorf(bailey.CodeSetupFailed, "speak with the sandbox's first process", "", "%w", err)
	}
	if s.held != nil {
		if err := s.warmUp(ctx); err != nil {
			s.destroy(context.WithoutCancel(ctx))
			return err
		}
	}
	return nil
}

// Close ends the sandbox and keeps what it changed. Later calls give the same
// result. The caller closes Run. A sandbox made ahead that nobody has taken is
// not for Close but for Discard.
func (s *Sandbox) Close(ctx context.Context) (bailey.End, error) { return s.close(ctx, false) }

func (s *Sandbox) close(ctx context.Context, drop bool) (bailey.End, error) {
	s.closed.Do(func() {
		if s.err = errors.Join(s.destroy(ctx), s.b.logLife("destroy")); s.err != nil || !drop || !s.b.layersEmpty() {
			s.err = errors.Join(s.err, s.b.finish(s.end))
			return
		}
		s.b.leaveLayers()
		s.err = s.b.host.Drop(s.Run)
	})
	return s.end, s.err
}

func (s *Sandbox) destroy(ctx context.Context) error {
	s.Client.Close()
	err := s.Instance.Destroy(ctx)
	s.end = s.Instance.End()
	s.Egress = s.b.closeGate(s.b.opened)
	s.b.req.Gate.Close()
	return err
}

// Leave is Close, but of a sandbox that has changed nothing no record is left:
// there is nothing to look at.
func (s *Sandbox) Leave(ctx context.Context) (bailey.End, error) { return s.close(ctx, true) }

// Denials gives what was refused to the sandbox on its way out so far.
func (s *Sandbox) Denials(ctx context.Context) ([]control.Denial, error) {
	if s.b.req.Gate == nil {
		return nil, nil
	}
	d, err := s.b.req.Gate.Denials(ctx)
	return d.Denials, err
}
