package lifebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
)

// EnvProfile names the file to which a daemon writes its processor profile.
const EnvProfile = "BAILEY_CPU_PROFILE"

// service is a keeper with daemon and gate, for this benchmark only.
type service struct {
	home string
	pid  int // the keeper
	said *os.File
	done chan struct{} // the keeper has ended
	c    *client.Client
}

const socketWait = 30 * time.Second

// startService starts it and waits until it answers.
func startService(ctx context.Context, dir, programs, profile string, args ...string) (*service, error) {
	const what = "start a daemon for the benchmark"
	s := &service{home: filepath.Join(dir, "home"), done: make(chan struct{})}
	failed := func(err error) (*service, error) {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, what, "", "%w", errors.Join(err, s.stop()))
	}
	if err := os.Mkdir(s.home, 0o700); err != nil {
		return failed(err)
	}
	var err error
	if s.said, err = os.Create(filepath.Join(dir, "said")); err != nil {
		return failed(err)
	}
	if s.c, err = client.New(client.Options{URL: "unix://" + filepath.Join(s.home, client.SocketName), Patience: -1}); err != nil {
		return failed(err)
	}
	args = append([]string{"--home", s.home, "--", filepath.Join(programs, "baileyd"), "serve", "--home", s.home}, args...)
	cmd := exec.Command(filepath.Join(programs, "bailey-keeper"), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, client.EnvHome+"=") })
	if profile != "" {
		cmd.Env = append(cmd.Env, EnvProfile+"="+profile)
	}
	cmd.Stdout, cmd.Stderr = s.said, s.said
	// An interrupt is for the benchmark, which ends it; so does the benchmark's end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // with this thread's end, Pdeathsig would come
		defer runtime.UnlockOSThread()
		defer close(s.done)
		err := cmd.Start()
		if err == nil {
			s.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			cmd.Wait() // what it said tells why it ended
		}
	}()
	if err := <-started; err != nil {
		return failed(err)
	}
	late := time.After(socketWait)
	for {
		if _, err := s.c.Info(ctx); err == nil {
			return s, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return failed(context.Cause(ctx))
		case <-s.done:
			return failed(fmt.Errorf("it ended: %s", s.words()))
		case <-late:
			return failed(fmt.Errorf("it does not answer within %s: %s", socketWait, s.words()))
		}
	}
}

// words gives the end of what it said.
func (s *service) words() string {
	b, _ := os.ReadFile(s.said.Name())
	return string(b[max(0, len(b)-600):])
}

// deleteAtOnce is how many sandboxes are deleted at once.
const deleteAtOnce = 8

// clear deletes all sandboxes.
func (s *service) clear(ctx context.Context) error {
	var refs []string
	for b, err := range s.c.AllSandboxes(ctx, api.SandboxQuery{}) {
		if err != nil {
			return err
		}
		refs = append(refs, b.ID)
	}
	return inParallel(refs, deleteAtOnce, func(ref string) error {
		err := s.c.Sandbox(ref).Delete(ctx)
		if bailey.CodeOf(err) == bailey.CodeNotFound { // one whose create was given up is taken back meanwhile
			return nil
		}
		return err
	})
}

// stop deletes all sandboxes and ends the service. It may be called when the service
// has not come up, and is not bound to the context of the benchmark.
func (s *service) stop() error {
	if s.c != nil {
		defer s.c.Close()
	}
	if s.said != nil {
		defer s.said.Close()
	}
	if s.pid == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	select {
	case <-s.done:
		err = fmt.Errorf("the service has ended by itself: %s", s.words())
	default:
		err = s.clear(ctx)
	}
	unix.Kill(s.pid, unix.SIGTERM)
	select {
	case <-s.done:
		return err
	case <-ctx.Done():
	}
	unix.Kill(s.pid, unix.SIGKILL) // its sandboxes and daemon end with it
	<-s.done
	return errors.Join(err, fmt.Errorf("the service did not end by itself within a minute: %s", s.words()))
}

// inParallel calls f for all, some at once, and joins what fails.
func inParallel[T any](all []T, wide int, f func(T) error) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed error
	slots := make(chan struct{}, wide)
	for _, x := range all {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := f(x); err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return failed
}
