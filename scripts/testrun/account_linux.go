package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is an ordinary user made for one suite: with a home folder, ranges of
// subordinate ids, a checkout and a module cache of its own, because the
// caller's may lie where nobody else can read.
type account struct {
	name     string
	uid, gid int
	home     string
	source   string // its checkout
	bins     string // a folder of root's that it can read, for the test binaries
	self     string // this program, where the user can reach it
}

// The names of such users end with the process id of their suite, so that a
// later one can remove what a killed one left.
const accountPrefix = "bailey-t"

func newAccount(ctx context.Context, base string) (*account, error) {
	removeStaleAccounts()
	a := &account{name: accountPrefix + strconv.Itoa(os.Getpid()), bins: filepath.Join(base, "bin")}
	if out, err := exec.Command("useradd", "--create-home", "--shell", "/bin/sh", a.name).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make an ordinary user: %w: %s", err, out)
	}
	if err := a.furnish(ctx); err != nil {
		return nil, errors.Join(err, a.remove())
	}
	return a, nil
}

func (a *account) furnish(ctx context.Context) error {
	u, err := user.Lookup(a.name)
	if err != nil {
		return err
	}
	a.home, a.source = u.HomeDir, filepath.Join(u.HomeDir, "bailey")
	a.uid, _ = strconv.Atoi(u.Uid)
	a.gid, _ = strconv.Atoi(u.Gid)
	if a.uid == 0 {
		return fmt.Errorf("the user %s is root", a.name)
	}
	if err := os.Mkdir(a.bins, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	a.self = filepath.Join(a.bins, "testrun")
	for _, step := range [][]string{
		{"cp", self, a.self},
		{"mkdir", "-p", a.source, filepath.Join(a.home, "go/pkg/mod")},
		{"sh", "-c", `tar -cf - --exclude=./.cache --exclude=node_modules . | tar -C "$0" -xf - --no-same-owner`, a.source},
	} {
		if out, err := output(ctx, "", nil, step...); err != nil {
			return fmt.Errorf("%s: %w: %s", step[0], err, out)
		}
	}
	cache, err := output(ctx, "", nil, "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	modules := []string{
		"GOMODCACHE=" + filepath.Join(a.home, "go/pkg/mod"), "CGO_ENABLED=0",
		"GOPROXY=file://" + filepath.Join(strings.TrimSpace(cache), "cache/download"), "GOSUMDB=off", "GOFLAGS=-modcacherw",
	}
	// For the other system too: a test lists what its packages import.
	for _, goos := range []string{"linux", "darwin"} {
		if out, err := output(ctx, a.source, append(modules, "GOOS="+goos), "go", "list", "-deps", "-test", "./..."); err != nil {
			return fmt.Errorf("copy the modules: %w: %s", err, out)
		}
	}
	out, err := output(ctx, "", nil, "chown", "-Rh", u.Uid+":"+u.Gid, a.home)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// command is what goes before a command that the user shall run.
func (a *account) command() []string {
	return []string{a.self, "as", a.name, a.home, strconv.Itoa(a.uid), strconv.Itoa(a.gid), a.bins}
}

// wrapper is the same for `go test -exec`.
func (a *account) wrapper() string { return strings.Join(a.command(), " ") }

// runAs becomes the user and runs a program, which it copies to where the user
// can read it: go test builds in a folder that only its owner can enter.
func runAs(args []string) int {
	if err := become(args); err != nil {
		fmt.Fprintln(os.Stderr, "testrun as:", err)
	}
	return probeFailed
}

func become(args []string) error {
	if len(args) < 6 {
		return errors.New("too few arguments")
	}
	name, home, bins, binary := args[0], args[1], args[4], args[5]
	uid, err1 := strconv.Atoi(args[2])
	gid, err2 := strconv.Atoi(args[3])
	if err := errors.Join(err1, err2); err != nil || uid == 0 {
		return fmt.Errorf("the user id %s: %w", args[2], err)
	}
	path := filepath.Join(bins, filepath.Base(binary))
	if path != binary {
		if out, err := exec.Command("install", "-m", "755", binary, path).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	env := without(os.Environ(), "HOME", "USER", "LOGNAME", "PATH", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOTMPDIR", "GOPATH", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
	env = append(env, "HOME="+home, "USER="+name, "LOGNAME="+name, "PATH="+reachable(uid, gid, os.Getenv("PATH")), "GOPROXY=off", "GOTOOLCHAIN=local")
	for _, step := range []func() error{
		func() error { return syscall.Setgroups([]int{gid}) },
		func() error { return syscall.Setresgid(gid, gid, gid) },
		func() error { return syscall.Setresuid(uid, uid, uid) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return syscall.Exec(path, append([]string{path}, args[6:]...), env)
}

// reachable leaves out the folders of a PATH below a home that is not the
// user's: an ordinary login would not have them.
func reachable(uid, gid int, path string) string {
	var out []string
	for _, dir := range filepath.SplitList(path) {
		ok := filepath.IsAbs(dir)
		for at := dir; ok && at != "/"; at = filepath.Dir(at) {
			var st syscall.Stat_t
			if err := syscall.Stat(at, &st); err != nil {
				ok = false
				break
			}
			switch {
			case int(st.Uid) == uid:
				ok = st.Mode&0o100 != 0
			case int(st.Gid) == gid:
				ok = st.Mode&0o010 != 0
			default:
				ok = st.Mode&0o001 != 0
			}
		}
		if ok {
			out = append(out, dir)
		}
	}
	return strings.Join(out, ":")
}

// processes lists what runs as the user, "pid command line" each. What is
// just ending gets two seconds for it.
func (a *account) processes() []string {
	var out []string
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if out = a.now(); len(out) == 0 || time.Now().After(deadline) {
			return out
		}
	}
}

func (a *account) now() []string {
	var out []string
	_ = a.each(func(pid int) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		out = append(out, fmt.Sprint(pid, " ", strings.ReplaceAll(string(b), "\x00", " ")))
	})
	return out
}

func (a *account) each(f func(pid int)) error {
	if a.uid == 0 {
		return nil
	}
	procs, err := os.ReadDir("/proc")
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		var st syscall.Stat_t
		if syscall.Stat("/proc/"+p.Name(), &st) == nil && int(st.Uid) == a.uid {
			f(pid)
		}
	}
	return err
}

func (a *account) remove() error {
	err := a.each(func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) })
	out, delErr := exec.Command("userdel", "--remove", "--force", a.name).CombinedOutput()
	if delErr != nil {
		return errors.Join(err, fmt.Errorf("userdel: %w: %s", delErr, out))
	}
	return err
}

func removeStaleAccounts() {
	b, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.Split(line, ":")
		if len(f) < 4 || !strings.HasPrefix(f[0], accountPrefix) {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimPrefix(f[0], accountPrefix))
		if err != nil || syscall.Kill(pid, 0) == nil {
			continue
		}
		stale := &account{name: f[0]}
		stale.uid, _ = strconv.Atoi(f[2])
		if err := stale.remove(); err != nil {
			fmt.Println("test: remove a user that an earlier run left:", err)
		}
	}
}
