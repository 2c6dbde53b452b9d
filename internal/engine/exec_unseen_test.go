//go:build linux

package engine

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// TestStartUnseen: a command whose start nobody answers for is told as lost, and does
// not run on unattended: it is killed if the sandbox answers late, and else the sandbox
// is ended.
func TestStartUnseen(t *testing.T) {
	was := startWithin
	t.Cleanup(func() { startWithin = was })
	startWithin = 500 * time.Millisecond
	for _, late := range []bool{true, false} {
		name := map[bool]string{true: "answers late", false: "never answers"}[late]
		t.Run(name, func(t *testing.T) {
			given := make(chan struct{}, 1)
			e := openEngine(t, func(o *Options) {
				o.Trace = func(step string) {
					if step == "exec started" {
						select {
						case given <- struct{}{}:
						default:
						}
					}
				}
			})
			s := create(t, e, process)
			b := boxOf(t, e, s.ID)
			g := b.generation()
			pid := g.instance.Pid()
			if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			type answer struct {
				x   api.Exec
				err error
			}
			answered := make(chan answer, 1)
			go func() {
				x, err := e.StartExec(t.Context(), me, s.ID, api.ExecSpec{ID: "unseen", Args: []string{"sleep", "1000"}})
				answered <- answer{x, err}
			}()
			<-given
			if late {
				if err := unix.Kill(pid, unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
			a := <-answered
			if a.err == nil && (a.x.End == nil || a.x.End.Reason != bailey.EndHostLost) || a.err != nil && bailey.CodeOf(a.err) != bailey.CodeSandboxLost {
				t.Errorf("answered: %+v %v", a.x.End, a.err)
			}
			if late {
				eventually(t, 5*time.Second, "it is killed", func() bool {
					return sh(t, e, s.ID, "cat /proc/[0-9]*/comm | grep -c '^sleep$' || true") == "0"
				})
				want(t, e, s.ID, api.StateRunning, "afterwards")
			} else {
				eventually(t, 5*time.Second, "it is lost", func() bool { return stateOf(t, e, s.ID) == api.StateLost })
				if end := sandboxOf(t, e, s.ID).End; end == nil || end.Reason != bailey.EndHostLost {
					t.Errorf("it ended %+v", end)
				}
			}
		})
	}
}
