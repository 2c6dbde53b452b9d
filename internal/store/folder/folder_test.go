package folder

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
)

func open(t *testing.T) *Folder {
	t.Helper()
	f, err := OpenAt(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func create(t *testing.T, f *Folder) *Run {
	t.Helper()
	r, err := f.Create(Record{Command: []string{"true"}, Level: bailey.IsolationProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func wantCode(t *testing.T, err error, code bailey.Code) {
	t.Helper()
	if bailey.CodeOf(err) != code {
		t.Fatalf("got %v, want an error with code %s", err, code)
	}
}

func TestDefaultPath(t *testing.T) {
	t.Setenv(EnvHome, "/a/b/../c")
	if p, err := DefaultPath(); err != nil || p != "/a/c" {
		t.Fatal(p, err)
	}
	t.Setenv(EnvHome, "relative")
	_, err := DefaultPath()
	wantCode(t, err, bailey.CodeUsage)
	t.Setenv(EnvHome, "")
	t.Setenv("XDG_DATA_HOME", "/xdg")
	want := "/xdg/bailey"
	if os.Geteuid() == 0 {
		want = "/var/lib/bailey"
	}
	if p, err := DefaultPath(); err != nil || p != want {
		t.Fatal(p, err)
	}
}

func TestOpenMakesNothing(t *testing.T) {
	f := open(t)
	if l, err := f.List(); err != nil || len(l) != 0 {
		t.Fatal(l, err)
	}
	if _, err := os.Lstat(f.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the folder was made though nothing needed it")
	}
	p, err := f.Cache()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{p, f.Path()} {
		if fi, err := os.Stat(d); err != nil || fi.Mode().Perm() != 0o700 {
			t.Fatalf("%s: %v %v", d, fi.Mode(), err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, mode := range []os.FileMode{0o720, 0o702, 0o777} {
		dir := t.TempDir()
		os.Chmod(dir, mode)
		_, err := OpenAt(dir)
		wantCode(t, err, bailey.CodeStorage)
	}
	file := filepath.Join(t.TempDir(), "f")
	os.WriteFile(file, nil, 0o600)
	_, err := OpenAt(file)
	wantCode(t, err, bailey.CodeStorage)
	if os.Geteuid() != 0 {
		t.Skip("needs root: giving a folder to another user")
	}
	dir := t.TempDir()
	os.Chown(dir, 65534, 65534)
	_, err = OpenAt(dir)
	wantCode(t, err, bailey.CodeStorage)
}

func TestHome(t *testing.T) {
	f := open(t)
	a, err := f.Home("/p/one", "claude")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := f.Home("/p/two", "claude")
	c, _ := f.Home("/p/one/", "claude")
	if a == b || a != c {
		t.Fatal(a, b, c)
	}
	for _, name := range []string{"", ".", "..", "a/b", "-x", ".x", "a\x00", strings.Repeat("a", 65), "ä"} {
		_, err := f.Home("/p", name)
		wantCode(t, err, bailey.CodeUsage)
	}
}

func TestLifeOfARun(t *testing.T) {
	f := open(t)
	r := create(t, f)
	if r.State() != StateRunning {
		t.Fatal(r.State())
	}
	other, err := f.Find(r.ID())
	if err != nil {
		t.Fatal(err)
	}
	if other.State() != StateRunning {
		t.Fatal("the lock of another descriptor was not seen")
	}
	wantCode(t, other.Lock(), bailey.CodeBusy)
	wantCode(t, other.Save(), bailey.CodeInternal)

	r.Close()
	if other.State() != StateInterrupted {
		t.Fatal(other.State())
	}
	if err := other.Lock(); err != nil {
		t.Fatal(err)
	}
	other.Record.State = StateKept
	other.Record.End = &bailey.End{Reason: bailey.EndExit, ExitCode: 3}
	if err := other.Save(); err != nil {
		t.Fatal(err)
	}
	other.Close()
	again, err := f.Find(r.ID()[:6])
	if err != nil || again.State() != StateKept || again.Record.End.ExitCode != 3 {
		t.Fatal(again, err)
	}
	if err := again.Lock(); err != nil {
		t.Fatal(err)
	}
	if err := again.Remove(); err != nil {
		t.Fatal(err)
	}
	_, err = f.Find(r.ID())
	wantCode(t, err, bailey.CodeNotFound)
	wantCode(t, other.Lock(), bailey.CodeNotFound)
	names, _ := readNames(filepath.Join(f.Path(), "runs"))
	if len(names) != 0 {
		t.Fatal("left behind:", names)
	}
}

func TestLockIsNotInherited(t *testing.T) {
	f := open(t)
	r := create(t, f)
	// A child that outlives us must not keep the run alive.
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	r.Close()
	o, _ := f.Find(r.ID())
	if o.State() != StateInterrupted {
		t.Fatal(o.State())
	}
}

func TestFind(t *testing.T) {
	f := open(t)
	_, err := f.Find("latest")
	wantCode(t, err, bailey.CodeNotFound)
	var last *Run
	seen := map[byte]bool{}
	ambiguous := ""
	for i := 0; i < 40; i++ { // more runs than letters: some share the first
		last = create(t, f)
		if seen[last.ID()[0]] {
			ambiguous = last.ID()[:1]
		}
		seen[last.ID()[0]] = true
		last.Record.Started = last.Record.Started.Add(1e9 * 3600)
		if i == 39 {
			last.Record.Started = last.Record.Started.Add(1e9 * 3600)
		}
		if err := last.Save(); err != nil {
			t.Fatal(err)
		}
	}
	_, err = f.Find(ambiguous)
	wantCode(t, err, bailey.CodeUsage)
	for _, ref := range []string{"", "../..", "/", "1"} {
		if _, err := f.Find(ref); bailey.CodeOf(err) != bailey.CodeNotFound {
			t.Fatalf("%q: %v", ref, err)
		}
	}
	if r, err := f.Find("latest"); err != nil || r.ID() != last.ID() {
		t.Fatal(r, err)
	}
	// A damaged record is listed, and hides no other.
	os.WriteFile(filepath.Join(last.Dir(), recordName), []byte(`{"version":1,"surprise":true}`), 0o600)
	list, err := f.List()
	if err != nil || len(list) != 40 {
		t.Fatal(len(list), err)
	}
	if r, err := f.Find("latest"); err != nil || r.ID() == last.ID() {
		t.Fatal(r, err)
	}
	_, err = f.Find(last.ID())
	wantCode(t, err, bailey.CodeStorage)
}

func TestConcurrentRuns(t *testing.T) {
	f := open(t)
	var wg sync.WaitGroup
	for i := 0; i < 16; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := 0; j < 10; j++ {
				r, err := f.Create(Record{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := f.Sweep(); err != nil {
					t.Error(err)
				}
				list, err := f.List()
				if err != nil {
					t.Error(err)
				}
				for _, o := range list {
					if o.ID() == r.ID() && o.State() != StateRunning {
						t.Errorf("a live run is %s", o.State())
					}
				}
				if err := r.Remove(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	if _, err := f.Sweep(); err != nil {
		t.Fatal(err)
	}
	names, _ := readNames(filepath.Join(f.Path(), "runs"))
	if len(names) != 0 {
		t.Fatal("left behind:", names)
	}
}

func TestSweep(t *testing.T) {
	f := open(t)
	r := create(t, f)
	runs := filepath.Dir(r.Dir())
	for _, name := range []string{newPrefix + "aaaaaaaaaa", gonePrefix + "bbbbbbbbbb"} {
		os.MkdirAll(filepath.Join(runs, name, "x"), 0o700)
	}
	half := &Run{Record: Record{ID: "cccccccccc"}, folder: f, dir: filepath.Join(runs, newPrefix+"cccccccccc")}
	os.Mkdir(half.dir, 0o700)
	if err := half.Lock(); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Sweep(); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	half.Close()
	if n, err := f.Sweep(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := f.Find(r.ID()); err != nil {
		t.Fatal(err)
	}
}

// hostile builds a tree that is hard to remove.
func hostile(dir string, depth int) error {
	outside := filepath.Join(filepath.Dir(dir), "outside")
	os.Mkdir(outside, 0o755)
	os.WriteFile(filepath.Join(outside, "precious"), nil, 0o644)
	for i := 0; i < 5; i++ { // as Go's module cache: nothing writable
		d := filepath.Join(dir, "mod", "m@v"+strconv.Itoa(i))
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
		os.WriteFile(filepath.Join(d, "f"), nil, 0o444)
		os.Symlink(outside, filepath.Join(d, "out"))
		os.Chmod(d, 0o555)
	}
	os.MkdirAll(filepath.Join(dir, "work", "work", "x"), 0o700)
	os.Chmod(filepath.Join(dir, "work", "work"), 0)
	os.Chmod(filepath.Join(dir, "mod"), 0o500)
	os.WriteFile(filepath.Join(dir, "\xff\n\x1b[31m"), nil, 0)
	unix.Mkfifo(filepath.Join(dir, "fifo"), 0)
	fd, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	for i := 0; i < depth; i++ {
		if err := unix.Mkdirat(fd, "deep", 0o700); err != nil {
			return err
		}
		next, err := unix.Openat(fd, "deep", unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		unix.Close(fd)
		fd = next
	}
	return unix.Close(fd)
}

func TestRemoveTree(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "tree")
	os.Mkdir(dir, 0o700)
	if err := hostile(dir, 3000); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTree(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("still there")
	}
	if _, err := os.Stat(filepath.Join(base, "outside", "precious")); err != nil {
		t.Fatal("a link was followed:", err)
	}
	if err := RemoveTree(dir); err != nil {
		t.Fatal("not there should be fine:", err)
	}
	link := filepath.Join(base, "link")
	os.Symlink(filepath.Join(base, "outside"), link)
	if err := RemoveTree(link); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(base, "outside", "precious")); err != nil {
		t.Fatal("a link was followed:", err)
	}
}

// TestRemoveTreeAsUser removes the same tree as an ordinary user, to whom
// modes mean something, in a child process.
func TestRemoveTreeAsUser(t *testing.T) {
	if dir := os.Getenv("FOLDER_TEST_TREE"); dir != "" {
		if err := hostile(dir, 300); err != nil {
			t.Fatal(err)
		}
		if err := RemoveTree(dir); err != nil {
			t.Fatal(err)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: becoming another user; TestRemoveTree covers this user")
	}
	base, err := os.MkdirTemp("/tmp", "folder-test")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	os.Chmod(base, 0o755)
	exe := filepath.Join(base, "test")
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(exe, data, 0o755)
	tree := filepath.Join(base, "u", "tree")
	os.MkdirAll(tree, 0o755)
	os.Chown(filepath.Dir(tree), 65534, 65534)
	os.Chown(tree, 65534, 65534)
	// A file of another owner in a folder of one's own.
	os.WriteFile(filepath.Join(tree, "roots"), nil, 0o600)
	cmd := exec.Command(exe, "-test.run", "^TestRemoveTreeAsUser$")
	cmd.Dir = base
	cmd.Env = append(os.Environ(), "FOLDER_TEST_TREE="+tree)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Lstat(tree); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("still there")
	}
}

func TestRemoveTreeStopsAtMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounting")
	}
	base := t.TempDir()
	dir := filepath.Join(base, "tree")
	os.MkdirAll(filepath.Join(dir, "m"), 0o700)
	os.MkdirAll(filepath.Join(base, "other", "sub"), 0o700)
	m := filepath.Join(dir, "m")
	if err := unix.Mount(filepath.Join(base, "other"), m, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	err := RemoveTree(dir)
	unix.Unmount(m, unix.MNT_DETACH)
	wantCode(t, err, bailey.CodeStorage)
	if _, err := os.Stat(filepath.Join(base, "other", "sub")); err != nil {
		t.Fatal("what was mounted was removed")
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"id":"aaaaaaaaaa","state":"kept","command":["x"],"roots":[{"path":"/p","mode":"copy","why":"","layer":"layers/0","dev":1,"ino":2}],"level":"process","limits":{},"started":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"id":"aaaaaaaaaa","state":"kept","journal":"../x"}`))
	f.Add([]byte(`{} {}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRecord(data)
		if err != nil {
			return
		}
		if !validID(r.ID) || r.Version != RecordVersion || r.State == StateInterrupted {
			t.Fatalf("accepted %+v", r)
		}
		for _, root := range r.Roots {
			if !filepath.IsLocal(root.Layer) || !filepath.IsAbs(root.Path) {
				t.Fatalf("accepted %+v", root)
			}
		}
	})
}

func TestParseRecordRefuses(t *testing.T) {
	ok := `"version":1,"id":"aaaaaaaaaa","state":"kept"`
	for name, s := range map[string]string{
		"unknown field": `{` + ok + `,"x":1}`,
		"version":       `{"version":2,"id":"aaaaaaaaaa","state":"kept"}`,
		"no version":    `{"id":"aaaaaaaaaa","state":"kept"}`,
		"id":            `{"version":1,"id":"../../etc","state":"kept"}`,
		"state":         `{"version":1,"id":"aaaaaaaaaa","state":"interrupted"}`,
		"two":           `{` + ok + `}{}`,
		"journal":       `{` + ok + `,"journal":"/etc/x"}`,
		"layer":         `{` + ok + `,"roots":[{"path":"/p","mode":"copy","layer":"../x"}]}`,
		"relative root": `{` + ok + `,"roots":[{"path":"p","mode":"copy","layer":"x"}]}`,
		"unclean root":  `{` + ok + `,"roots":[{"path":"/p/../q","mode":"copy","layer":"x"}]}`,
		"mode":          `{` + ok + `,"roots":[{"path":"/p","mode":"","layer":"x"}]}`,
	} {
		if _, err := ParseRecord([]byte(s)); err == nil {
			t.Errorf("%s: accepted %s", name, s)
		}
	}
	if _, err := ParseRecord([]byte(`{` + ok + `}`)); err != nil {
		t.Error(err)
	}
}

// A run made ahead is in no list before it begins, lives while its lock is held,
// and goes with the next sweep when it is not.
func TestReady(t *testing.T) {
	f := open(t)
	r, err := f.Ready(Record{Level: bailey.IsolationProcess})
	if err != nil {
		t.Fatal(err)
	}
	list := func() int {
		t.Helper()
		l, err := f.List()
		if err != nil {
			t.Fatal(err)
		}
		return len(l)
	}
	other, err := OpenAt(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := other.Sweep(); n != 0 || err != nil || list() != 0 || !other.Alive(r.ID()) {
		t.Errorf("before it begins: swept %d (%v), %d in the list, alive %v", n, err, list(), other.Alive(r.ID()))
	}
	made := r.Record.Started
	if err := r.Begin(); err != nil {
		t.Fatal(err)
	}
	if found, err := other.Find(r.ID()); err != nil || !found.Record.Started.After(made) || found.Dir() != r.Dir() {
		t.Errorf("when it has begun: %+v, %v", found, err)
	}
	if list() != 1 || !other.Alive(r.ID()) {
		t.Errorf("when it has begun: %d in the list, alive %v", list(), other.Alive(r.ID()))
	}
	r.Close()
	if other.Alive(r.ID()) || other.Alive("aaaaaaaaaa") || other.Alive("../x") {
		t.Error("what is dead or was never there is alive")
	}

	if r, err = f.Ready(Record{}); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if other.Alive(r.ID()) {
		t.Error("one that nobody holds is alive")
	}
	if n, err := other.Sweep(); n != 1 || err != nil || list() != 1 {
		t.Errorf("swept %d (%v), %d in the list", n, err, list())
	}
}
