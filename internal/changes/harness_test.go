package changes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// What the tests' sandboxes do, by name, since an ordinary user's overlay
// lives in another process: this test binary, in a user namespace.
var acts = map[string]func(dir string) error{}

const envAct, envOptions, envTarget = "CHANGES_TEST_ACT", "CHANGES_TEST_OPTIONS", "CHANGES_TEST_TARGET"

// envForeign names a workspace of this user's with a file of root's in it.
const envForeign = "CHANGES_TEST_FOREIGN"

func TestMain(m *testing.M) {
	if name := os.Getenv(envAct); name != "" {
		err := unix.Mount("overlay", os.Getenv(envTarget), "overlay", 0, os.Getenv(envOptions))
		if err == nil {
			err = acts[name](os.Getenv(envTarget))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code bailey.Code) {
	t.Helper()
	if bailey.CodeOf(err) != code {
		t.Fatalf("got %v, want an error with code %s", err, code)
	}
}

// sandbox is a workspace with a run over it.
type sandbox struct {
	t    testing.TB
	ws   string
	data *folder.Folder
	run  *folder.Run
}

// start makes a run over the workspace ws, with layers beside it.
func start(t testing.TB, ws string, opts workspace.Options) *sandbox {
	t.Helper()
	data, err := folder.OpenAt(filepath.Join(filepath.Dir(ws), "data"))
	must(t, err)
	opts.DataFolder = data.Path()
	plan, err := workspace.New(ws, opts)
	must(t, err)
	run, err := data.Create(folder.Record{Command: []string{"act"}, Roots: plan.Roots})
	must(t, err)
	t.Cleanup(func() {
		run.Close()
		// An overlay leaves a work folder that its user cannot even read.
		if err := folder.RemoveTree(run.Dir()); err != nil {
			t.Error(err)
		}
	})
	must(t, plan.Prepare(context.Background(), run.Dir()))
	return &sandbox{t, ws, data, run}
}

// do lets the named act change what the sandbox sees.
func (s *sandbox) do(name string) {
	s.t.Helper()
	if acts[name] == nil {
		s.t.Fatalf("there is no act %s", name)
	}
	root := s.run.Record.Roots[0]
	if root.Mode == folder.ModeCopy {
		must(s.t, acts[name](workspace.Tree(s.run.Dir(), root)))
		return
	}
	merged := filepath.Join(s.run.Dir(), "merged")
	if err := os.Mkdir(merged, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		s.t.Fatal(err)
	}
	options := "lowerdir=" + root.Path + ",upperdir=" + workspace.Upper(s.run.Dir(), root) + ",workdir=" + workspace.Work(s.run.Dir(), root) + ",index=off,metacopy=off"
	if !root.UserXattr {
		must(s.t, unix.Mount("overlay", merged, "overlay", 0, options+",redirect_dir=off"))
		err := acts[name](merged)
		must(s.t, unix.Unmount(merged, 0))
		must(s.t, err)
		return
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envAct+"="+name, envTarget+"="+merged, envOptions+"="+options+",userxattr")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s in a user namespace: %v\n%s", name, err, out)
	}
}

// end ends the run and seals it.
func (s *sandbox) end() *Set {
	s.t.Helper()
	s.run.Record.State = folder.StateKept
	must(s.t, s.run.Save())
	set, err := Seal(context.Background(), s.run)
	must(s.t, err)
	return set
}

// lines gives a set in a short form: one line per change.
func lines(set *Set) []string {
	var out []string
	for i := range set.Changes {
		c := &set.Changes[i]
		l := fmt.Sprintf("%s %s", c.Op, set.Display(c))
		if c.TypeChanged() {
			l += fmt.Sprintf(" %s>%s", c.Was, c.Is)
		} else if c.Op == Modified {
			for _, f := range []struct {
				set  bool
				name string
			}{{c.Content, "content"}, {c.Mode, "mode"}, {c.Owner, "owner"}, {c.Xattr, "xattr"}} {
				if f.set {
					l += " " + f.name
				}
			}
		} else {
			l += " " + string(c.Was+c.Is)
		}
		if c.Binary {
			l += " binary"
		}
		for _, m := range c.Marks {
			l += " !" + m.Class
		}
		out = append(out, l)
	}
	return out
}

func same(t testing.TB, got, want []string) {
	t.Helper()
	g, w := append([]string(nil), got...), append([]string(nil), want...)
	sort.Strings(g)
	sort.Strings(w)
	if strings.Join(g, "\n") != strings.Join(w, "\n") {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(g, "\n\t"), strings.Join(w, "\n\t"))
	}
}

func put(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// onEach runs the test over each kind of file system that is there, and with
// an overlay as well as a full copy.
func onEach(t *testing.T, test func(t *testing.T, dir string, opts workspace.Options)) {
	for _, fs := range []string{"temp", "tmpfs", "xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) {
			for _, way := range []string{"overlay", "copy"} {
				t.Run(way, func(t *testing.T) {
					dir := t.TempDir()
					if fs != "temp" {
						dir = mountFS(t, fs)
					}
					test(t, dir, workspace.Options{ForceCopy: way == "copy"})
				})
			}
		})
	}
}

func mountFS(t *testing.T, fs string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounting")
	}
	dir := filepath.Join(t.TempDir(), "m")
	must(t, os.Mkdir(dir, 0o755))
	if fs == "tmpfs" {
		must(t, unix.Mount("none", dir, "tmpfs", 0, "size=512m"))
	} else {
		mkfs, err := exec.LookPath("mkfs." + fs)
		if err != nil {
			t.Skip("needs tool mkfs." + fs)
		}
		img := filepath.Join(t.TempDir(), "img")
		must(t, os.WriteFile(img, nil, 0o600))
		must(t, os.Truncate(img, 400<<20))
		if out, err := exec.Command(mkfs, "-q", img).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		if out, err := exec.Command("mount", "-o", "loop", img, dir).CombinedOutput(); err != nil {
			t.Skipf("needs host mount-%s: %s", fs, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestAsUser runs, as an ordinary user, the test that needs a file of somebody
// else, which only root can put there.
func TestAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: becoming another user; the other tests cover this user")
	}
	base, err := os.MkdirTemp("/tmp", "changes-test")
	must(t, err)
	defer os.RemoveAll(base)
	must(t, os.Chmod(base, 0o755))
	data, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	exe := filepath.Join(base, "test")
	must(t, os.WriteFile(exe, data, 0o755))
	own := filepath.Join(base, "own")
	must(t, os.Mkdir(own, 0o755))
	must(t, os.Chown(own, 65534, 65534))
	foreign := filepath.Join(own, "foreign", "ws")
	must(t, os.MkdirAll(foreign, 0o755))
	must(t, os.WriteFile(filepath.Join(foreign, "theirs"), []byte("root's\n"), 0o600))
	must(t, os.Chown(filepath.Dir(foreign), 65534, 65534))
	must(t, os.Chown(foreign, 65534, 65534))
	// All other tests of this user are the ordinary pass of ./scripts/test.
	args := []string{"-test.run", "^TestUnreadableFileIsDeleted$"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.Command(exe, args...)
	cmd.Dir = own
	cmd.Env = []string{envForeign + "=" + foreign, "TMPDIR=" + own, "HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func itoa(i int) string { return strconv.Itoa(i) }

// stopwatch gives a function that reports the seconds since its last call.
func stopwatch(b *testing.B) func(unit string) {
	at := time.Now()
	return func(unit string) {
		b.ReportMetric(time.Since(at).Seconds(), unit)
		at = time.Now()
	}
}
