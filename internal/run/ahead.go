package run

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// untouched refuses to make a sandbox ahead that would have looked at its
// workspace before it is taken: the kernel keeps what it has found, and the host
// may change it until then.
func (b *builder) untouched(spec driver.Spec) error {
	const what, fix = "prepare sandboxes", "make it when it is needed"
	for _, r := range b.plan.Roots {
		if r.Mode != folder.ModeOverlay {
			return bailey.Errorf(bailey.CodeNotAvailable, what, fix, "%s is not seen live (%s)", r.Path, r.Why)
		}
		for _, p := range spec.Root.Places {
			if p.Target != r.Path && within(p.Target, r.Path) {
				return bailey.Errorf(bailey.CodeNotAvailable, what, fix, "%s is shown inside of the workspace %s", p.Target, r.Path)
			}
		}
	}
	return nil
}

// warmUp has bailey-init go the whole way to starting a command once, so that
// the first real one does not wait for pages of it. The command cannot exist: no
// program of the host or of an image runs before somebody asks for it.
func (s *Sandbox) warmUp(ctx context.Context) error {
	_, err := s.Client.Run(ctx, guest.ExecSpec{ID: "warm-up", Argv: []string{"/dev/null/warm-up"}, Env: s.Env, Dir: "/"}, nil, 0)
	if bailey.CodeOf(err) != bailey.CodeCommandNotFound {
		return bailey.Errorf(bailey.CodeSetupFailed, "prepare a sandbox", "", "a command that does not exist ended with %v", err)
	}
	return nil
}

// Take puts a sandbox to use that was made ahead. From here on it is like one
// made now: it is in the data folder's list, and what the host changes from now
// on is in conflict with what it changes. What it sees of the host but for the
// workspace and whole folders was found out when it was made; the caller decides
// for how long that will do. After an error the sandbox is of no
// use, for a reason that lies in it and not in what was asked for: Discard it.
func (s *Sandbox) Take(ctx context.Context) (err error) {
	const what = "use a prepared sandbox"
	if s.held == nil {
		return bailey.Errorf(bailey.CodeInternal, what, "", "it was not made ahead")
	}
	if err := s.b.logLife("create"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.b.logLife("destroy"))
		}
	}()
	alive := make(chan error, 1)
	go func() { alive <- s.Client.Ping(ctx) }()
	err = s.b.plan.Renew(s.b.base.here)
	if err == nil {
		inFolder := s.b.base.here == s.Run.Dir()
		if err = s.Run.Begin(); inFolder {
			s.b.base.here = s.Run.Dir()
		}
	}
	err = errors.Join(err, <-alive)
	select {
	case <-s.Instance.Done():
		err = errors.Join(err, bailey.Errorf(bailey.CodeSandboxLost, what, "", "it has ended"))
	default:
	}
	if err != nil {
		return err
	}
	close(s.held)
	if s.Workdir != s.b.plan.Dir {
		fi, err := s.Client.Stat(ctx, s.Workdir, nil)
		if err != nil {
			return err
		}
		if fi.Mode&unix.S_IFMT != unix.S_IFDIR {
			return bailey.Errorf(bailey.CodeUsage, what, "", "%s is not a folder inside", s.Workdir)
		}
	}
	return nil
}

// Discard ends a sandbox that was made ahead and removes all of it, the files in
// the background. Nothing of it was anybody's.
func (s *Sandbox) Discard(ctx context.Context) error {
	err := s.destroy(ctx)
	s.b.leaveLayers()
	return errors.Join(err, s.b.host.Drop(s.Run))
}
