//go:build linux

package rig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// Patience is how long a test waits for something that has to come.
var Patience = testneeds.Slower(30 * time.Second)

// Person is who starts bailey.
type Person struct {
	Name     string
	UID, GID int
}

// nobody is the id that every Linux reserves for a user who owns nothing.
const nobody = 65534

// Self is the user who runs the tests.
func Self() Person {
	if os.Geteuid() == 0 {
		return Person{"root", 0, 0}
	}
	return Person{"user", os.Geteuid(), os.Getegid()}
}

// People gives the users to test with: an ordinary one always, and root where
// the tests run as root.
func People() []Person {
	if os.Geteuid() != 0 {
		return []Person{Self()}
	}
	return []Person{Self(), {"user", nobody, nobody}}
}

// Root says whether the person is root.
func (p Person) Root() bool { return p.UID == 0 }

// Yard is one person's place on the machine: all that a test's bailey may touch
// lies below Base.
type Yard struct {
	Who  Person
	Base string
	Home string // HOME; empty
	Temp string // TMPDIR; empty
	Work string // the workspace
	Data string // BAILEY_HOME; not made
	Env  []string
	bin  string
	t    testing.TB
}

// New makes a yard and removes it at the end of the test, which fails if
// anything of the yard still lives then.
func New(t testing.TB, who Person) *Yard {
	t.Helper()
	bin := Programs(t)
	parent := os.TempDir()
	if who.UID != os.Geteuid() {
		parent = Shared
	}
	base, err := os.MkdirTemp(parent, "yard-")
	if err == nil {
		base, err = filepath.EvalSymlinks(base)
	}
	if err != nil {
		t.Fatal(err)
	}
	y := &Yard{Who: who, Base: base, Home: base + "/home", Temp: base + "/tmp", Work: base + "/work", Data: base + "/data", bin: bin, t: t}
	for _, dir := range []string{base, y.Home, y.Temp, y.Work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, who.UID, who.GID); err != nil {
			t.Fatal(err)
		}
	}
	y.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + y.Home, "TMPDIR=" + y.Temp, "BAILEY_HOME=" + y.Data,
		"LANG=C.UTF-8", "TERM=dumb", "USER=" + who.Name}
	before := mounts(t)
	t.Cleanup(func() {
		if took, err := y.Gone(Patience); err != nil {
			t.Errorf("after %v: %v", took, err)
		}
		y.Mounts(before)
		y.LoopDevices()
		if err := removeAll(base); err != nil {
			t.Error(err)
		}
	})
	return y
}

// removeAll removes a tree in which there may be folders without permissions.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// Set sets a variable of the person's environment.
func (y *Yard) Set(name, value string) {
	y.Env = slices.DeleteFunc(y.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	y.Env = append(y.Env, name+"="+value)
}

// Native prepares a program of the host as the person would start it, in the
// workspace.
func (y *Yard) Native(name string, args ...string) *exec.Cmd {
	path := name
	if !strings.Contains(name, "/") {
		for _, e := range y.Env {
			if list, ok := strings.CutPrefix(e, "PATH="); ok {
				for _, dir := range filepath.SplitList(list) {
					if fi, err := os.Stat(filepath.Join(dir, name)); err == nil && fi.Mode()&0o111 != 0 {
						path = filepath.Join(dir, name)
						break
					}
				}
			}
		}
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = y.Work, slices.Clone(y.Env)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if y.Who.UID != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(y.Who.UID), Gid: uint32(y.Who.GID)}
	}
	// What is left of a sandbox must not keep the test waiting for its output.
	cmd.WaitDelay = Patience
	return cmd
}

// Bailey prepares a bailey command line.
func (y *Yard) Bailey(args ...string) *exec.Cmd {
	return y.Native(filepath.Join(y.bin, "bailey"), args...)
}

// Result is how a command ended.
type Result struct {
	Code           int
	Stdout, Stderr string
}

func (r Result) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", r.Code, r.Stdout, r.Stderr)
}

// Finish runs a prepared command to its end, within ten times Patience.
func (y *Yard) Finish(cmd *exec.Cmd) Result {
	y.t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	if err := cmd.Start(); err != nil {
		y.t.Fatal(err)
	}
	late := time.AfterFunc(10*Patience, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		y.t.Errorf("%v hung", cmd.Args)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		y.t.Fatalf("%v: %v", cmd.Args, err)
	}
	code := cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return Result{code, out.String(), errs.String()}
}

// Run runs a bailey command line.
func (y *Yard) Run(args ...string) Result {
	y.t.Helper()
	return y.Finish(y.Bailey(args...))
}

// Must is Run for what has to end with code 0; it gives stdout.
func (y *Yard) Must(args ...string) string {
	y.t.Helper()
	r := y.Run(args...)
	if r.Code != 0 {
		y.t.Fatalf("bailey %q: %v", args, r)
	}
	return r.Stdout
}

// Listed is a run as `bailey changes --list --json` shows it.
type Listed struct {
	ID, State string
	Folder    string
	Command   []string
}

// List gives the runs in the data folder, as bailey tells them.
func (y *Yard) List() []Listed {
	y.t.Helper()
	var list []Listed
	out := y.Must("changes", "--list", "--json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		y.t.Fatalf("%v: %s", err, out)
	}
	return list
}

// Write makes a file of the person's; parents are made, too.
func (y *Yard) Write(path, content string, mode os.FileMode) {
	y.t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(y.Work, path)
	}
	if err := y.mkdirAll(filepath.Dir(path)); err != nil {
		y.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		y.t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path, mode), os.Chown(path, y.Who.UID, y.Who.GID)); err != nil {
		y.t.Fatal(err)
	}
}

// mkdirAll makes folders that belong to the person.
func (y *Yard) mkdirAll(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if os.IsNotExist(err) {
		if err = y.mkdirAll(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, 0o755)
		}
	}
	if os.IsExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chown(dir, y.Who.UID, y.Who.GID)
}
