//go:build linux

package fault

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// steps runs bailey to its end and gives the steps that it took: those of the
// program itself, and those of the sandbox's first process by number, from 1.
func (s *site) steps(args []string) (parent, child []string) {
	s.t.Helper()
	list := filepath.Join(s.Base, "steps")
	defer os.Remove(list)
	cmd := s.Bailey(args...)
	cmd.Env = append(cmd.Env, "BAILEY_FAULT_LIST="+list)
	if r := s.Finish(cmd); r.Code != 0 {
		s.t.Fatal(r)
	}
	b, err := os.ReadFile(list)
	if err != nil {
		s.t.Fatal(err)
	}
	seen := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(b), "\x00"), "\x00") {
		if step, ok := strings.CutPrefix(name, "child:"); ok {
			child = append(child, step)
		} else if !seen[name] {
			seen[name] = true
			parent = append(parent, name)
		}
	}
	return parent, child
}

// kill ends a bailey and waits for it.
func (s *site) kill(cmd *exec.Cmd) {
	s.t.Helper()
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Error(err)
	}
	cmd.Wait()
}

// stopped waits until the process has stopped; false if it has ended instead.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	late := time.AfterFunc(rig.Patience, func() { syscall.Kill(pid, syscall.SIGKILL) })
	defer late.Stop()
	for {
		// A part of siginfo_t: waitid(2) sets si_code behind si_signo and si_errno.
		var info struct {
			signo, errno, code int32
			_                  [116]byte
		}
		_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
			unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			t.Fatal(errno)
		}
		const cldStopped = 5
		return info.code == cldStopped
	}
}

// killAtStep starts bailey, kills it before its step, and gives the namespaces
// that the sandbox was in.
func (s *site) killAtStep(step string, args []string) []*os.File {
	s.t.Helper()
	cmd := s.Bailey(args...)
	cmd.Env = append(cmd.Env, "BAILEY_FAULT="+step)
	said, err := os.CreateTemp(s.Base, "stderr-")
	if err != nil {
		s.t.Fatal(err)
	}
	defer os.Remove(said.Name())
	defer said.Close()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	reached := stopped(s.t, cmd.Process.Pid)
	namespaces := rig.Namespaces(rig.Descendants())
	s.kill(cmd)
	if !reached {
		b, _ := os.ReadFile(said.Name())
		s.t.Errorf("bailey did not get to its step %q: %v, %s", step, cmd.ProcessState, b)
	}
	return namespaces
}

// killInChild starts bailey, waits until the sandbox's first process has taken
// that many steps, kills bailey and lets the process go on.
func (s *site) killInChild(after int, args []string) []*os.File {
	s.t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	ours, theirs := pair[0], os.NewFile(uintptr(pair[1]), "gate")
	defer unix.Close(ours)
	limit := unix.NsecToTimeval(rig.Patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(ours, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		s.t.Fatal(err)
	}
	cmd := s.Bailey(args...)
	cmd.Env = append(cmd.Env, "BAILEY_FAULT=child:"+strconv.Itoa(after))
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := unix.Read(ours, make([]byte, 1))
	for err == unix.EINTR { // a bounded read is not begun again by itself
		n, err = unix.Read(ours, make([]byte, 1))
	}
	if n != 1 {
		s.t.Errorf("the first process did not get to its step %d: %v", after, err)
	}
	namespaces := rig.Namespaces(rig.Descendants())
	s.kill(cmd)
	unix.Write(ours, []byte("x"))
	return namespaces
}

// TestKilledAtEachStep kills bailey before each of its steps.
func TestKilledAtEachStep(t *testing.T) {
	for _, who := range rig.People() {
		for level := range levels {
			variants := map[string][]string{"": nil}
			if who.Root() {
				variants["+limits"] = []string{"--memory", "256M", "--pids", "100", "--disk", "32M"}
			}
			for name, extra := range variants {
				t.Run(who.Name+"/"+level+name, func(t *testing.T) {
					s := newSite(t, who)
					args := s.command(level, extra, "mischief.sh")
					steps, _ := s.steps(args)
					s.Must("discard", "--all")
					s.host, s.runs = s.Host(), nil
					if len(steps) < 12 {
						t.Errorf("there are only these steps: %q", steps)
					}
					saved := false
					for _, step := range steps {
						what := "killed before " + step
						s.aftermath(what, s.killAtStep(step, args))
						state := "interrupted"
						if saved = saved || step == "saved"; saved {
							state = "kept"
						}
						s.settle(what, state)
					}
				})
			}
		}
	}
}

var (
	paths  = regexp.MustCompile(`/\S*`)
	number = regexp.MustCompile(`[0-9]+`)
)

// kinds gives the numbers of the steps of the sandbox's first process that
// differ by more than the path or number that they are about: the first and the
// last of a kind.
func kinds(steps []string) []int {
	first, last := map[string]int{}, map[string]int{}
	for i, name := range steps {
		if i == len(steps)-1 {
			break // after it there is another program
		}
		if strings.HasPrefix(name, "look for a free descriptor") || strings.HasPrefix(name, "take descriptor") {
			// The first makes the script go over the second, which is never
			// taken, and would go over the gate instead.
			continue
		}
		kind := number.ReplaceAllString(paths.ReplaceAllString(name, "PATH"), "N")
		if _, ok := first[kind]; !ok {
			first[kind] = i + 1
		}
		last[kind] = i + 1
	}
	chosen := map[int]bool{}
	for k := range first {
		chosen[first[k]], chosen[last[k]] = true, true
	}
	var list []int
	for n := range steps {
		if chosen[n] {
			list = append(list, n)
		}
	}
	return list
}

// TestKilledWhileTheFirstProcessIsAtEachStep kills bailey while it waits for the
// process that builds the sandbox, which then goes on without it.
func TestKilledWhileTheFirstProcessIsAtEachStep(t *testing.T) {
	for _, who := range rig.People() {
		for level := range levels {
			t.Run(who.Name+"/"+level, func(t *testing.T) {
				s := newSite(t, who)
				args := s.command(level, nil, "linger.sh")
				_, steps := s.steps(s.command(level, nil, "mischief.sh"))
				s.Must("discard", "--all")
				s.host, s.runs = s.Host(), nil
				list := kinds(steps)
				t.Logf("%d of %d steps", len(list), len(steps))
				if len(list) < 60 {
					t.Errorf("there are only %d kinds of steps: %q", len(list), steps)
				}
				for i, n := range list {
					what := fmt.Sprintf("killed after step %d, %s", n, steps[n-1])
					s.aftermath(what, s.killInChild(n, args))
					if i%20 == 19 || i == len(list)-1 {
						s.settle(what, "interrupted")
					}
				}
			})
		}
	}
}
