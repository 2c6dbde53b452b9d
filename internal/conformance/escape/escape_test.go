//go:build linux

package escape

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/landlock"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// stage is what a process of the suite in the outer namespaces is to do, as JSON
// in the environment variable stageVariable.
type stage struct {
	Dir, Attack string
	Furnished   bool
	User        int // who makes the sandboxes
	Peers       []int
	OwnKernel   bool // levels with a kernel of their own are tried, too
}

const stageVariable = "BAILEY_ESCAPE_STAGE"

// onlyVariable narrows the attempts while one is worked on, as in
// "/container-root/^kill$". The count is then not checked.
const onlyVariable = "BAILEY_ESCAPE_ONLY"

// ordinary is the user of the rootless runs when root runs the suite.
const ordinary = 65534

func TestMain(m *testing.M) {
	if text := os.Getenv(stageVariable); text != "" {
		var s stage
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			panic(err)
		}
		if !s.Furnished {
			fmt.Fprintln(os.Stderr, enter(s))
			os.Exit(1)
		}
		inside = &s
	}
	os.Exit(m.Run())
}

var inside *stage

// enter furnishes the outer namespaces, becomes the user and starts again.
func enter(s stage) (err error) {
	if err := Furnish(); err != nil {
		return err
	}
	if s.Peers, err = PeerNetwork(); err != nil {
		return fmt.Errorf("make the peer network: %w", err)
	}
	s.Furnished = true
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if os.Geteuid() != s.User {
		if err := first(unix.Setgroups(nil), unix.Setresgid(s.User, s.User, s.User), unix.Setresuid(s.User, s.User, s.User)); err != nil {
			return err
		}
	}
	unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	os.Setenv(stageVariable, string(text))
	return unix.Exec(filepath.Join(s.Dir, "suite"), os.Args, os.Environ())
}

func first(errs ...error) error {
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return nil
}

// TestEscapes makes every attempt as root and as an ordinary user, in outer
// namespaces. As an ordinary user the part of root is left out, and said so.
func TestEscapes(t *testing.T) {
	if inside != nil {
		t.Skip("this is the inner part")
	}
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs tool %s: it makes a network beside the suite's", tool)
		}
	}
	dir, err := os.MkdirTemp("/var/tmp", "bailey-escape-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := folder.RemoveTree(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	attack := filepath.Join(dir, "attack")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", attack, "./attack")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the attacker: %v\n%s", err, out)
	}
	// The test program lies in a folder that only its builder may enter.
	if err := copyProgram("/proc/self/exe", filepath.Join(dir, "suite")); err != nil {
		t.Fatal(err)
	}
	programs := rig.Levels(t)
	t.Cleanup(func() { os.RemoveAll(programs) })
	for _, name := range []string{"runsc", "bailey-cell"} {
		if err := copyProgram(filepath.Join(programs, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	users := []int{os.Geteuid()}
	if os.Geteuid() == 0 {
		users = append(users, ordinary)
	}
	for _, user := range users {
		name := "rootless"
		if user == 0 {
			name = "root"
		}
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(stage{Dir: dir, Attack: attack, User: user, OwnKernel: user == os.Geteuid()})
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"-test.run=^TestStage$" + os.Getenv(onlyVariable), "-test.parallel=6", "-test.timeout=5m"}
			if testing.Verbose() {
				args = append(args, "-test.v")
			}
			cmd := exec.Command(filepath.Join(dir, "suite"), args...)
			Outer(cmd)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), stageVariable+"="+string(text), "TMPDIR="+dir)
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func copyProgram(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		return err
	}
	return dst.Close()
}

// enough is how many attempts with a control run each level must have.
const enough = 60

// TestStage makes the attempts of one user. It is started by TestEscapes.
func TestStage(t *testing.T) {
	if inside == nil {
		t.Skip("part of TestEscapes")
	}
	for _, fd := range inside.Peers {
		unix.CloseOnExec(fd)
	}
	s := &Suite{Dir: inside.Dir, Attack: inside.Attack, State: filepath.Join(inside.Dir, fmt.Sprintf("state-%d", inside.User)), Peers: inside.Peers}
	t.Run("through-run", func(t *testing.T) { throughRun(t, s) })
	var mu sync.Mutex
	counted := map[Mode]int{}
	for _, m := range Modes() {
		if m.Root != (inside.User == 0) {
			continue
		}
		t.Run(strings.ReplaceAll(m.String(), "/", "-"), func(t *testing.T) {
			t.Cleanup(func() { t.Logf("%s: %d attempts with a control run", m, counted[m]) })
			attempts := Attempts()
			slices.SortStableFunc(attempts, func(a, b Attempt) int { return bool2int(b.alone) - bool2int(a.alone) })
			for _, a := range attempts {
				if !a.In(m) {
					continue
				}
				t.Run(a.Name, func(t *testing.T) {
					if !a.alone {
						t.Parallel()
					}
					if a.Needs != "" {
						if _, err := os.Stat(a.Needs); err != nil {
							t.Logf("not counted: this kernel has no %s", a.Needs)
							return
						}
					}
					if try(t, s, &a, m) && !t.Failed() {
						mu.Lock()
						counted[m]++
						mu.Unlock()
					}
				})
			}
		})
		t.Run(strings.ReplaceAll(m.String(), "/", "-")+"-others", func(t *testing.T) {
			for _, a := range Others() {
				t.Run(a.Name, func(t *testing.T) {
					t.Parallel()
					r := once(t, s, &a, m, nil)
					if r.Landed || !r.Started && !a.refused {
						t.Errorf("landed %v, started %v", r.Landed, r.Started)
						report(t, r)
					}
				})
			}
		})
		if counted[m] < enough && os.Getenv(onlyVariable) == "" {
			t.Errorf("%s: %d attempts with a control run, want at least %d", m, counted[m], enough)
		}
	}
	if inside.OwnKernel {
		for _, m := range OwnKernel(inside.User == 0) {
			ownKernel(t, s, m)
		}
	}
}

// elsewhere are attempts that say nothing of a sandbox with a kernel of its own.
var elsewhere = map[string]string{
	"x32":             "there the calls are unknown, where the filter kills who makes them",
	"unshare-user":    "it shows by the namespaces of the process that speaks, which is gVisor's kernel",
	"clone-user":      "the same",
	"nested-net":      "the same",
	"nested-mounts":   "the same",
	"nested-pids":     "the same",
	"outlet-nested":   "there are no nested sandboxes to be asked for",
	"descriptor-bomb": "descriptors are gVisor's kernel's, and counted there",
}

// ownKernel makes the attempts in a sandbox with a kernel of its own.
func ownKernel(t *testing.T, s *Suite, m Mode) {
	t.Run(strings.ReplaceAll(m.String(), "/", "-"), func(t *testing.T) {
		for _, a := range append(Attempts(), Others()...) {
			if !a.In(m) || elsewhere[a.Name] != "" {
				continue
			}
			t.Run(a.Name, func(t *testing.T) {
				if !a.alone {
					t.Parallel()
				}
				r := once(t, s, &a, m, nil)
				if r.Landed {
					t.Errorf("ESCAPED; evidence: %s", a.Seen)
				}
				// Where there is one id, nobody can be another user than root.
				refused := r.Refused != nil && (a.refused || bailey.CodeOf(r.Refused) == bailey.CodeNotAvailable && !m.Root)
				if !r.Started && r.End.Reason != bailey.EndNotStarted && !refused {
					t.Errorf("the attacker did not run: %v, %v", r.Refused, r.End)
				}
				report(t, r)
			})
		}
	})
}

func bool2int(b bool) int {
	if b {
		return 1
	}
	return 0
}

// try makes an attempt with all walls up, without each but one, and without
// all that stop it. It says whether the attempt counts.
func try(t *testing.T, s *Suite, a *Attempt, m Mode) bool {
	walls := a.WallsIn(m)
	if landlock.ABI() == 0 {
		walls = slices.DeleteFunc(walls, func(w Wall) bool { return w == linux.NoLandlock })
	}
	r := once(t, s, a, m, nil)
	if r.Landed {
		t.Errorf("ESCAPED with every wall up; evidence: %s", a.Seen)
	}
	if !r.Started && r.Refused == nil {
		t.Errorf("the attacker did not run: %v", r.End)
	}
	if r.Refused != nil && !a.refused {
		t.Errorf("the sandbox was not made: %v", r.Refused)
	}
	report(t, r)
	if len(walls) > 1 {
		for _, w := range walls {
			rest := slices.DeleteFunc(slices.Clone(walls), func(o Wall) bool { return o == w })
			if r := once(t, s, a, m, a.Without(rest)); r.Landed {
				t.Errorf("%s does not stop it alone: the attempt succeeds without %v", w, rest)
			}
		}
	}
	r = once(t, s, a, m, a.Without(walls))
	if slices.ContainsFunc(r.Words, func(w string) bool { return strings.HasPrefix(w, absent) }) {
		t.Log("not counted: this kernel has no such call")
		return false
	}
	if !r.Landed {
		t.Errorf("the control run without %v failed, so the attempt proves nothing (made: %v)", walls, r.Refused)
		report(t, r)
	}
	return r.Landed
}

// absent begins what an attacker says whose call does not exist.
var absent = fmt.Sprintf("\"answer %d\"", unix.ENOSYS)

func report(t *testing.T, r Result) {
	if t.Failed() {
		t.Logf("said %q, printed %q, refused %v, end %v", r.Words, r.Log, r.Refused, r.End)
	}
}

func once(t *testing.T, s *Suite, a *Attempt, m Mode, omit []Wall) Result {
	t.Helper()
	r, err := s.Run(a, m, omit)
	if err != nil {
		t.Fatalf("without %v: %v", omit, err)
	}
	return r
}

// TestTable checks that the table can be printed and that names are unique.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range Attempts() {
		if seen[a.Name] || a.Name == "" || a.Tries == "" || a.Seen == "" {
			t.Errorf("attempt %q is not described, or twice", a.Name)
		}
		seen[a.Name] = true
		for _, m := range Modes() {
			if a.In(m) && len(a.WallsIn(m)) == 0 {
				t.Errorf("%s in %s names no wall", a.Name, m)
			}
		}
		if (a.RootOnly || a.Only != 0) && a.Why == "" {
			t.Errorf("%s is not made in every mode and does not say why", a.Name)
		}
	}
	for _, m := range Modes() {
		var b strings.Builder
		if err := WriteTable(&b, m); err != nil || strings.Count(b.String(), "\n") < enough/2 {
			t.Errorf("%s: %v\n%s", m, err, b.String())
		}
	}
}
