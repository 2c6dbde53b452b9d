package changes

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

var ctx = context.Background()

// shape gives all that a user can see of a tree, but for folders' times.
func shape(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(p, &st))
		s := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
		switch kindOf(st.Mode) {
		case File:
			b, err := os.ReadFile(p)
			must(t, err)
			x, err := workspace.Xattrs(p)
			must(t, err)
			s += fmt.Sprintf(" %d %q %v", st.Mtim.Nano(), b, x)
		case Symlink:
			l, err := os.Readlink(p)
			must(t, err)
			s += " -> " + l
		}
		rel, _ := filepath.Rel(dir, p)
		all[rel] = s
		return nil
	}))
	return all
}

func sameShape(t testing.TB, got, want map[string]string) {
	t.Helper()
	for n, w := range want {
		if g := got[n]; g != w {
			t.Errorf("%q is %.200s, want %.200s", n, g, w)
		}
	}
	for n := range got {
		if _, ok := want[n]; !ok {
			t.Errorf("%q should not be there", n)
		}
	}
}

func clean(t testing.TB, r *Report, err error) {
	t.Helper()
	must(t, err)
	if !r.Complete() {
		var b bytes.Buffer
		r.Write(&b)
		t.Fatalf("not all was done: %s", b.String())
	}
}

// remaining scans the layers afresh: what still differs from the host.
func remaining(t testing.TB, s *sandbox) []string {
	t.Helper()
	set, err := scan(ctx, s.run, nil)
	must(t, err)
	return lines(set)
}

func TestApplyAndRevert(t *testing.T) {
	onEach(t, func(t *testing.T, dir string, opts workspace.Options) {
		ws := filepath.Join(dir, "ws")
		must(t, os.Mkdir(ws, 0o755))
		if unix.Setxattr(ws, "user.note", []byte("x"), 0) != nil {
			t.Skip("needs host user-xattr")
		}
		before(t, ws)
		was := shape(t, ws)
		s := start(t, ws, opts)
		s.do("everything")
		set := s.end()
		for round := 0; round < 2; round++ {
			r, err := Apply(ctx, s.run, set, ApplyOptions{})
			clean(t, r, err)
			if s.run.Record.State != folder.StateApplied {
				t.Error(s.run.Record.State)
			}
			if !opts.ForceCopy {
				same(t, remaining(t, s), nil)
			}
			if b, _ := os.ReadFile(filepath.Join(ws, "changed")); string(b) != "other\n" {
				t.Errorf("%q", b)
			}
			again, err := Apply(ctx, s.run, set, ApplyOptions{})
			clean(t, again, err)
			if again.Done != 0 {
				t.Errorf("applied twice: %+v", again)
			}
			rev, err := Revert(ctx, s.run)
			clean(t, rev, err)
			sameShape(t, shape(t, ws), was)
			if s.run.Record.State != folder.StateKept {
				t.Error(s.run.Record.State)
			}
		}
	})
}

// TestApplyAcross has the workspace and the data folder on two file systems.
func TestApplyAcross(t *testing.T) {
	dir := mountFS(t, "tmpfs")
	ws := filepath.Join(dir, "ws")
	must(t, os.Mkdir(ws, 0o755))
	before(t, ws)
	was := shape(t, ws)
	data := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	must(t, unix.Mount(data, filepath.Join(dir, "data"), "", unix.MS_BIND, ""))
	t.Cleanup(func() { unix.Unmount(filepath.Join(dir, "data"), unix.MNT_DETACH) })
	s := start(t, ws, workspace.Options{})
	s.do("everything")
	set := s.end()
	r, err := Apply(ctx, s.run, set, ApplyOptions{})
	clean(t, r, err)
	same(t, remaining(t, s), nil)
	rev, err := Revert(ctx, s.run)
	clean(t, rev, err)
	sameShape(t, shape(t, ws), was)
}

func init() {
	acts["edit"] = func(d string) error {
		return steps(write(d+"/f", "sandbox\n"), write(d+"/new", "sandbox\n"), func() error { return os.Remove(d + "/del") },
			func() error { return os.RemoveAll(d + "/dir") }, write(d+"/sub/x", "sandbox\n"))
	}
}

func TestConflicts(t *testing.T) {
	later := func(p, content string) func(*testing.T, string) {
		return func(t *testing.T, ws string) { put(t, filepath.Join(ws, p), content) }
	}
	for name, c := range map[string]struct {
		host  func(t *testing.T, ws string)
		path  string // the conflict; "" for none
		after string // content of path after a forced apply
	}{
		"nothing":            {func(*testing.T, string) {}, "", ""},
		"modified":           {later("f", "host\n"), "f", "sandbox\n"},
		"same size":          {later("f", "basf\n"), "f", "sandbox\n"},
		"same content again": {later("f", "base\n"), "", ""},
		"touched": {func(t *testing.T, ws string) {
			must(t, os.Chtimes(filepath.Join(ws, "f"), time.Now(), time.Now()))
		}, "", ""},
		"mode":    {func(t *testing.T, ws string) { must(t, os.Chmod(filepath.Join(ws, "f"), 0o600)) }, "f", "sandbox\n"},
		"deleted": {func(t *testing.T, ws string) { must(t, os.Remove(filepath.Join(ws, "f"))) }, "f", "sandbox\n"},
		"now a link": {func(t *testing.T, ws string) {
			must(t, os.Remove(filepath.Join(ws, "f")))
			must(t, os.Symlink("/etc/passwd", filepath.Join(ws, "f")))
		}, "f", "sandbox\n"},
		"added":                  {later("new", "host\n"), "new", "sandbox\n"},
		"added the same":         {later("new", "sandbox\n"), "", ""},
		"deleted and modified":   {later("del", "host\n"), "del", ""},
		"both deleted":           {func(t *testing.T, ws string) { must(t, os.Remove(filepath.Join(ws, "del"))) }, "", ""},
		"file in deleted folder": {later("dir/fresh", "host\n"), "dir", ""},
		"parent is a link": {func(t *testing.T, ws string) {
			must(t, os.Rename(filepath.Join(ws, "sub"), ws+".sub"))
			must(t, os.Symlink(ws+".sub", filepath.Join(ws, "sub")))
		}, "sub/x", ""},
		"parent is gone":   {func(t *testing.T, ws string) { must(t, os.RemoveAll(filepath.Join(ws, "sub"))) }, "sub/x", ""},
		"already as asked": {later("f", "sandbox\n"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ws := filepath.Join(t.TempDir(), "ws")
			for _, n := range []string{"f", "del", "dir/a", "sub/x"} {
				put(t, filepath.Join(ws, n), "base\n")
			}
			s := start(t, ws, workspace.Options{})
			s.do("edit")
			set := s.end()
			c.host(t, ws)
			was := shape(t, ws)
			r, err := Apply(ctx, s.run, set, ApplyOptions{})
			must(t, err)
			if c.path == "" {
				clean(t, r, err)
				return
			}
			if len(r.Conflicts) != 1 || r.Conflicts[0].Path != c.path || len(r.Refused) != 0 {
				t.Fatalf("%+v", r)
			}
			if got := shape(t, ws); got[c.path] != was[c.path] {
				t.Errorf("the host's file was touched: %s, was %s", got[c.path], was[c.path])
			}
			if s.run.Record.State != folder.StateKept {
				t.Error(s.run.Record.State)
			}
			var b bytes.Buffer
			must(t, r.Write(&b))
			for _, part := range []string{"base:", "host:", "sandbox:", c.path} {
				if !strings.Contains(b.String(), part) {
					t.Errorf("the report lacks %s: %s", part, b.String())
				}
			}
			r, err = Apply(ctx, s.run, set, ApplyOptions{Force: true})
			must(t, err)
			if c.after != "" {
				clean(t, r, nil)
				if b, _ := os.ReadFile(filepath.Join(ws, c.path)); string(b) != c.after {
					t.Errorf("after force it is %q", b)
				}
			} else if !r.Complete() {
				var b bytes.Buffer
				must(t, r.Write(&b))
				if strings.Contains(b.String(), "--force") || c.path == "dir" && !strings.Contains(b.String(), "the host's own") {
					t.Errorf("the advice after a forced apply: %s", b.String())
				}
			}
			r, err = Revert(ctx, s.run)
			clean(t, r, err)
			sameShape(t, shape(t, ws), was)
		})
	}
}

// TestChangedDuringTheRun: what the sandbox started from is not known.
func TestChangedDuringTheRun(t *testing.T) {
	for _, way := range []bool{false, true} {
		ws := filepath.Join(t.TempDir(), "ws")
		for _, n := range []string{"f", "del", "dir/a", "sub/x"} {
			put(t, filepath.Join(ws, n), "base\n")
		}
		s := start(t, ws, workspace.Options{ForceCopy: way})
		// The clock of files ticks a few hundred times a second.
		for began := s.run.Record.Started; ; {
			put(t, filepath.Join(ws, "f"), "host\n")
			if fi, err := os.Stat(filepath.Join(ws, "f")); err != nil || fi.ModTime().After(began) {
				break
			}
		}
		s.do("edit")
		set := s.end()
		r, err := Apply(ctx, s.run, set, ApplyOptions{Merge: true})
		must(t, err)
		if len(r.Conflicts) != 1 || r.Conflicts[0].Path != "f" || r.Conflicts[0].Base.Known {
			t.Fatalf("%+v", r)
		}
	}
}

func TestMerge(t *testing.T) {
	base := "1\n2\n3\n4\n5\n6\n7\n8\n"
	for name, c := range map[string]struct{ ours, theirs, want string }{
		"apart":  {"one\n2\n3\n4\n5\n6\n7\n8\n", "1\n2\n3\n4\n5\n6\n7\neight\n", "one\n2\n3\n4\n5\n6\n7\neight\n"},
		"same":   {"x\n2\n3\n4\n5\n6\n7\n8\n", "x\n2\n3\n4\n5\n6\n7\n8\n", "x\n2\n3\n4\n5\n6\n7\n8\n"},
		"clash":  {"x\n2\n3\n4\n5\n6\n7\n8\n", "y\n2\n3\n4\n5\n6\n7\n8\n", ""},
		"touch":  {"x\n2\n3\n4\n5\n6\n7\n8\n", "1\ny\n3\n4\n5\n6\n7\n8\n", ""},
		"append": {base + "a\n", base + "b\n", ""},
	} {
		if got := mergeText(base, c.ours, c.theirs); string(got) != c.want || (got == nil) != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	acts["merge"] = func(d string) error { return write(d+"/f", "1\n2\n3\n4\n5\n6\n7\neight\n")() }
	if os.Geteuid() != 0 {
		return // the rest needs no overlay of another process
	}
	ws := filepath.Join(t.TempDir(), "ws")
	put(t, filepath.Join(ws, "f"), base)
	s := start(t, ws, workspace.Options{})
	s.do("merge")
	set := s.end()
	put(t, filepath.Join(ws, "f"), "one\n2\n3\n4\n5\n6\n7\n8\n")
	r, err := Apply(ctx, s.run, set, ApplyOptions{})
	if err != nil || len(r.Conflicts) != 1 {
		t.Fatal(r, err)
	}
	r, err = Apply(ctx, s.run, set, ApplyOptions{Merge: true})
	clean(t, r, err)
	if b, _ := os.ReadFile(filepath.Join(ws, "f")); string(b) != "one\n2\n3\n4\n5\n6\n7\neight\n" || r.Merged != 1 {
		t.Fatalf("%q %+v", b, r)
	}
}

func TestSelection(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	must(t, os.Mkdir(ws, 0o755))
	before(t, ws)
	s := start(t, ws, workspace.Options{})
	s.do("everything")
	set := s.end()
	r, err := Apply(ctx, s.run, set, ApplyOptions{Select: Selection{Only: []string{".git/hooks/pre-commit", "*ed"}, Except: []string{"changed"}}})
	must(t, err)
	if len(r.Conflicts)+len(r.Refused) != 0 || r.Left == 0 || s.run.Record.State != folder.StateKept {
		t.Fatalf("%+v", r)
	}
	for p, want := range map[string]bool{".git/hooks/pre-commit": true, "moved": false, "moved-to": false, "new": false, "gone": true} {
		if _, err := os.Lstat(filepath.Join(ws, p)); (err == nil) != want {
			t.Errorf("%s: %v", p, err)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(ws, "changed")); string(b) != "changed\n" {
		t.Errorf("%q", b)
	}
	r, err = Apply(ctx, s.run, set, ApplyOptions{})
	clean(t, r, err)
	same(t, remaining(t, s), nil)
	for _, bad := range []string{"/etc", "../x", "[", ""} {
		_, err := Apply(ctx, s.run, set, ApplyOptions{Select: Selection{Only: []string{bad}}})
		wantCode(t, err, bailey.CodeUsage)
	}
}

// TestHostileLayer has things in the layer that no apply may carry over.
func TestHostileLayer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: devices and setuid attributes")
	}
	for _, way := range []bool{false, true} {
		base := t.TempDir()
		ws := filepath.Join(base, "ws")
		put(t, filepath.Join(ws, "f"), "base\n")
		put(t, filepath.Join(ws, "owned"), "base\n")
		s := start(t, ws, workspace.Options{ForceCopy: way})
		l := workspace.Layer(s.run.Dir(), s.run.Record.Roots[0])
		must(t, unix.Mknod(filepath.Join(l, "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(254, 0))))
		must(t, unix.Mknod(filepath.Join(l, "sock"), unix.S_IFSOCK|0o666, 0))
		put(t, filepath.Join(l, "suid"), "x")
		must(t, os.Chmod(filepath.Join(l, "suid"), 0o755|os.ModeSetuid))
		put(t, filepath.Join(l, "caps"), "x")
		must(t, unix.Setxattr(filepath.Join(l, "caps"), "security.capability",
			[]byte{1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0))
		put(t, filepath.Join(l, "owned"), "base\n")
		must(t, os.Chown(filepath.Join(l, "owned"), 1234, 1234))
		put(t, filepath.Join(l, "swapped"), "x")
		put(t, filepath.Join(l, "grown"), "x")
		put(t, filepath.Join(l, tempPrefix+"x"), "x")
		must(t, os.Mkdir(filepath.Join(l, "d"), 0o755))
		put(t, filepath.Join(l, "d", "in"), "x")
		set := s.end()
		// After the look, the layer changes: the sandbox should be dead, but
		// that is not what safety rests on.
		secret := filepath.Join(base, "secret")
		put(t, secret, "secret")
		must(t, os.Remove(filepath.Join(l, "swapped")))
		must(t, os.Symlink(secret, filepath.Join(l, "swapped")))
		put(t, filepath.Join(l, "grown"), "other")
		must(t, os.RemoveAll(filepath.Join(l, "d")))
		must(t, os.Symlink(base, filepath.Join(l, "d")))
		must(t, os.WriteFile(filepath.Join(base, "in"), []byte("secret"), 0o644))
		r, err := Apply(ctx, s.run, set, ApplyOptions{Force: true})
		must(t, err)
		got := map[string]string{}
		for _, f := range r.Refused {
			got[f.Path] = f.Why
		}
		for _, p := range []string{"disk", "sock", "suid", "caps", "owned", "swapped", "grown", tempPrefix + "x", "d/in"} {
			if got[p] == "" {
				t.Errorf("%s was not refused", p)
			}
			fi, err := os.Lstat(filepath.Join(ws, p))
			if p != "owned" && err == nil {
				t.Errorf("%s is on the host: %v", p, fi.Mode())
			}
		}
		left, _ := filepath.Glob(filepath.Join(ws, tempPrefix+"*"))
		if len(left) != 0 {
			t.Error("left behind:", left)
		}
	}
}

// TestSwapper moves the workspace's folders for links to a folder outside,
// as fast as it can, while changes are applied and reverted.
func TestSwapper(t *testing.T) {
	base := t.TempDir()
	ws := filepath.Join(base, "ws")
	for i := 0; i < 8; i++ {
		put(t, filepath.Join(ws, "sub", "x"+strconv.Itoa(i)), "base\n")
	}
	put(t, filepath.Join(ws, "f"), "base\n")
	put(t, filepath.Join(ws, "sub", "x"), "base\n")
	put(t, filepath.Join(ws, "del"), "base\n")
	put(t, filepath.Join(ws, "dir", "a"), "base\n")
	outside := filepath.Join(base, "outside")
	for _, n := range []string{"x", "a", "new", "x0"} {
		put(t, filepath.Join(outside, n), "precious\n")
	}
	s := start(t, ws, workspace.Options{})
	s.do("edit")
	set := s.end()
	want := shape(t, outside)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for _, n := range []string{"sub", "dir"} {
			os.Symlink(outside, filepath.Join(base, n+".link"))
		}
		for i := 0; ; i++ {
			select {
			case <-stop:
				if i%2 == 0 { // each round is one exchange: end with the folders in place
					return
				}
			default:
			}
			for _, n := range []string{"sub", "dir"} {
				unix.Renameat2(unix.AT_FDCWD, filepath.Join(ws, n), unix.AT_FDCWD, filepath.Join(base, n+".link"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	for i := 0; i < 60; i++ {
		if _, err := Apply(ctx, s.run, set, ApplyOptions{Force: i%2 == 0}); err != nil {
			t.Error(err)
		}
		if _, err := Revert(ctx, s.run); err != nil && bailey.CodeOf(err) != bailey.CodeStorage {
			t.Error(err)
		}
	}
	close(stop)
	<-stopped
	sameShape(t, shape(t, outside), want)
}

// TestKilled kills an apply, and then a revert, at every step; what is left
// is finished or taken back.
func TestKilled(t *testing.T) {
	if at := os.Getenv("CHANGES_TEST_KILL"); at != "" {
		killedChild(t, at)
		return
	}
	for _, way := range []string{"apply", "revert"} {
		for _, where := range []string{"same", "across"} {
			t.Run(way+"/"+where, func(t *testing.T) {
				for n := 1; ; n++ {
					if killedAt(t, way, where, n) {
						if n < 20 {
							t.Fatalf("it ended after %d steps", n)
						}
						return
					}
				}
			})
		}
	}
}

// killedAt gives true when the n-th step was never reached.
func killedAt(t *testing.T, way, where string, n int) bool {
	dir, err := os.MkdirTemp("", "killed")
	must(t, err)
	defer folder.RemoveTree(dir)
	if where == "across" {
		if os.Geteuid() != 0 {
			t.Skip("needs root: mounting")
		}
		must(t, unix.Mount("none", dir, "tmpfs", 0, "size=64m"))
		defer unix.Unmount(dir, unix.MNT_DETACH)
		data, err := os.MkdirTemp("", "killed-data")
		must(t, err)
		defer folder.RemoveTree(data)
		must(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
		must(t, unix.Mount(data, filepath.Join(dir, "data"), "", unix.MS_BIND, ""))
		defer unix.Unmount(filepath.Join(dir, "data"), unix.MNT_DETACH)
	}
	ws := filepath.Join(dir, "ws")
	for _, p := range []string{"f", "del", "dir/a", "sub/x"} {
		put(t, filepath.Join(ws, p), "base\n")
	}
	was := shape(t, ws)
	s := start(t, ws, workspace.Options{})
	s.do("edit")
	set := s.end()
	if way == "revert" {
		r, err := Apply(ctx, s.run, set, ApplyOptions{})
		clean(t, r, err)
	}
	s.run.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestKilled$")
	cmd.Env = append(os.Environ(), "CHANGES_TEST_KILL="+way, "CHANGES_TEST_N="+strconv.Itoa(n), "CHANGES_TEST_DATA="+s.data.Path(), "CHANGES_TEST_RUN="+s.run.ID())
	out, err := cmd.CombinedOutput()
	ended := err == nil
	if err != nil {
		if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !st.Signaled() || st.Signal() != syscall.SIGKILL {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	run, err := s.data.Find(s.run.ID())
	must(t, err)
	must(t, run.Lock())
	defer run.Close()
	// At any moment each file is old or new.
	for p, contents := range map[string][]string{"f": {"base\n", "sandbox\n"}, "sub/x": {"base\n", "sandbox\n"}} {
		b, err := os.ReadFile(filepath.Join(ws, p))
		if err != nil || string(b) != contents[0] && string(b) != contents[1] {
			t.Errorf("killed at %d, %s is %q, %v", n, p, b, err)
		}
	}
	if n%2 == 0 {
		r, err := Apply(ctx, run, set, ApplyOptions{})
		clean(t, r, err)
		fresh, err := scan(ctx, run, nil)
		must(t, err)
		same(t, lines(fresh), nil)
	}
	if run.Record.Journal != "" {
		r, err := Revert(ctx, run)
		clean(t, r, err)
	}
	sameShape(t, shape(t, ws), was)
	if t.Failed() {
		j, _ := os.ReadFile(filepath.Join(run.Dir(), journalName))
		t.Fatalf("killed %s at %d\n%s", way, n, j)
	}
	return ended
}

func killedChild(t *testing.T, way string) {
	data, err := folder.OpenAt(os.Getenv("CHANGES_TEST_DATA"))
	must(t, err)
	run, err := data.Find(os.Getenv("CHANGES_TEST_RUN"))
	must(t, err)
	must(t, run.Lock())
	left, err := strconv.Atoi(os.Getenv("CHANGES_TEST_N"))
	must(t, err)
	hook = func() {
		if left--; left == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	if way == "revert" {
		_, err = Revert(ctx, run)
	} else {
		var set *Set
		set, err = Scan(ctx, run)
		must(t, err)
		_, err = Apply(ctx, run, set, ApplyOptions{})
	}
	must(t, err)
}

func FuzzJournal(f *testing.F) {
	head := `{"bailey_journal":1,"run":"aaaaaaaaaa"}` + "\n"
	f.Add([]byte(head + `{"n":0,"phase":"plan","path":"Zg==","temp":".bailey-aaaaaaaaaa-0"}` + "\n" + `{"n":0,"phase":"done","act":"add"}` + "\n"))
	f.Add([]byte(head + `{"n":0,"phase":"plan","path":"Li4vZg==","temp":".bailey-x"}` + "\n"))
	f.Add([]byte(head + `{"n":7,"phase":"done"}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		steps, end, err := parseJournal(bytes.NewReader(data), "aaaaaaaaaa")
		if err != nil {
			return
		}
		if end > int64(len(data)) {
			t.Fatal(end)
		}
		for _, s := range steps {
			if !filepath.IsLocal(s.path()) || strings.Contains(s.Temp, "/") {
				t.Fatalf("%+v", s)
			}
		}
	})
}
