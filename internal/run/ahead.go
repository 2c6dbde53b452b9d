package run

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// MaxAge is how long a sandbox made ahead may wait to be taken. What it sees of
// the host is found out when it is made; only the workspace and whole folders
// are seen live.
const MaxAge = time.Minute

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

// Take puts a sandbox to use that was made ahead. From here on it is like one
// made now: it is in the data folder's list, and what the host changes from now
// on is in conflict with what it changes. After an error the sandbox is of no
// use, for a reason that lies in it and not in what was asked for: Discard it.
func (s *Sandbox) Take(ctx context.Context) error {
	const what = "use a prepared sandbox"
	if s.held == nil {
		return bailey.Errorf(bailey.CodeInternal, what, "", "it was not made ahead")
	}
	if age := time.Since(s.begun); age > MaxAge {
		return bailey.Errorf(bailey.CodeConflict, what, "", "it is %s old", age.Round(time.Second))
	}
	alive := make(chan error, 1)
	go func() { alive <- s.Client.Ping(ctx) }()
	err := errors.Join(s.b.plan.Renew(s.b.base.here), <-alive)
	select {
	case <-s.Instance.Done():
		err = errors.Join(err, bailey.Errorf(bailey.CodeSandboxLost, what, "", "it has ended"))
	default:
	}
	if err != nil {
		return err
	}
	inFolder := s.b.base.here == s.Run.Dir()
	if err := s.Run.Begin(); err != nil {
		return err
	}
	if inFolder {
		s.b.base.here = s.Run.Dir()
	}
	s.b.host.awaitStamp(s.Run.Record)
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
