//go:build linux

package landlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Domains are entered in processes of their own: the test binary starts itself
// with childVar set to the name of a part.
const childVar = "BAILEY_LANDLOCK_CHILD"

var parts = map[string]func() map[string]error{
	"files":   childFiles,
	"host":    childHost,
	"devices": childDevices,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childVar); name != "" {
		runtime.LockOSThread()
		out := map[string]int{}
		for what, err := range parts[name]() {
			var errno syscall.Errno
			if err != nil && !errors.As(err, &errno) {
				check(err)
			}
			out[what] = int(errno)
		}
		check(json.NewEncoder(os.Stdout).Encode(out))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func check(err error) {
	if err != nil {
		_, _, line, _ := runtime.Caller(1)
		fmt.Fprintf(os.Stderr, "child, line %d: %v\n", line, err)
		os.Exit(3)
	}
}

// child runs a part with files as descriptors 3 and so on, and gives the
// errors of its attempts.
func child(t *testing.T, name string, attr *syscall.SysProcAttr, env []string, files ...int) map[string]syscall.Errno {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childVar+"="+name, "GORACE=atexit_sleep_ms=0"), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
	for _, fd := range files {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(n), "passed")
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]syscall.Errno
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// restrict enters the domain of a ruleset, unless this is a control run.
func restrict(ruleset int) {
	if os.Getenv("CONTROL") != "" {
		return
	}
	check(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	_, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0)
	if errno != 0 {
		check(errno)
	}
}

func write(name string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_NOCTTY, 0o644)
	if err == nil {
		_, err = unix.Write(fd, []byte("x"))
		unix.Close(fd)
	}
	return err
}

func read(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOCTTY, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// childFiles attaches what it was given as a new root, enters the domain and
// tries what it can do there. Descriptors: 3 root, 4 overlay, 5 bind, 6 second
// bind, 7 ruleset.
func childFiles() map[string]error {
	const rootFD, overlayFD, bindFD, bind2FD, ruleset = 3, 4, 5, 6, 7
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for name, fd := range map[string]int{"merged": overlayFD, "host": bindFD, "host2": bind2FD} {
		check(unix.Mkdirat(rootFD, name, 0o755))
		check(unix.MoveMount(fd, "", rootFD, name, unix.MOVE_MOUNT_F_EMPTY_PATH))
	}
	top := os.Getenv("TOP")
	check(unix.MoveMount(rootFD, "", unix.AT_FDCWD, top, unix.MOVE_MOUNT_F_EMPTY_PATH))
	check(unix.Chdir(top))
	switch how := os.Getenv("ROOT"); how {
	case "pivot":
		check(unix.PivotRoot(".", "."))
		check(unix.Unmount(".", unix.MNT_DETACH))
	case "move":
		check(unix.Mount(".", "/", "", unix.MS_MOVE, ""))
		check(unix.Chroot("."))
	default:
		check(fmt.Errorf("no root %q", how))
	}
	check(unix.Chdir("/"))
	check(write("/before"))
	restrict(ruleset)
	return map[string]error{
		"read lower":        read("/merged/lower"),
		"change lower":      write("/merged/lower"),
		"make in overlay":   write("/merged/new"),
		"mkdir in overlay":  unix.Mkdir("/merged/dir", 0o755),
		"rename in overlay": unix.Rename("/merged/move", "/merged/sub/moved"),
		"link in overlay":   unix.Link("/merged/sub/file", "/merged/linked"),
		"remove in overlay": unix.Unlink("/merged/gone"),
		"device in overlay": unix.Mknod("/merged/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		"list root":         read("/"),
		"write root":        write("/before"),
		"make in root":      write("/new"),
		"mkdir in root":     unix.Mkdir("/dir", 0o755),
		"read host":         read("/host/file"),
		"write host":        write("/host/file"),
		"truncate host":     unix.Truncate("/host/file", 0),
		"remove host":       unix.Unlink("/host/file2"),
		"write host2":       write("/host2/file"),
		"out of overlay":    unix.Rename("/merged/sub/out", "/before2"),
		"mount":             unix.Mount("none", "/host", "tmpfs", 0, ""),
		"unmount":           unix.Unmount("/host2", unix.MNT_DETACH),
	}
}

// world is what childFiles is given.
type world struct {
	root, overlay, bind, bind2  int
	lower, upper, host, hostTwo string
	top                         string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{lower: dir + "/lower", upper: dir + "/upper", host: dir + "/host", hostTwo: dir + "/host2", top: dir + "/top"}
	for _, d := range []string{w.lower + "/sub", w.upper, dir + "/work", w.host, w.hostTwo, w.top} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{w.lower + "/lower", w.lower + "/move", w.lower + "/gone", w.lower + "/sub/file", w.lower + "/sub/out", w.host + "/file", w.host + "/file2", w.hostTwo + "/file"} {
		if err := os.WriteFile(f, []byte("a"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.root = fsmount(t, "tmpfs")
	w.overlay = fsmount(t, "overlay", "lowerdir", w.lower, "upperdir", w.upper, "workdir", dir+"/work")
	w.bind, w.bind2 = openTree(t, w.host), openTree(t, w.hostTwo)
	return w
}

func fsmount(t *testing.T, kind string, options ...string) int {
	t.Helper()
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fs)
	for i := 0; i < len(options); i += 2 {
		if err := unix.FsconfigSetString(fs, options[i], options[i+1]); err != nil {
			t.Fatal(options[i], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func openTree(t *testing.T, dir string) int {
	t.Helper()
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func create(t *testing.T, c Config) int {
	t.Helper()
	p := New(ABI(), c)
	if len(p.Missing) > 0 {
		t.Skipf("needs host landlock-%d: this kernel lacks %v", ABI()+1, p.Missing)
	}
	fd, err := p.Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestLiveMovedMounts makes rules on mounts before they are attached, and
// checks that they hold after these have been moved and the root changed.
func TestLiveMovedMounts(t *testing.T) {
	needABI(t, 3)
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes mounts")
	}
	const no, ok = syscall.Errno(unix.EACCES), syscall.Errno(0)
	usual := map[string]syscall.Errno{
		"read lower": ok, "change lower": ok, "make in overlay": ok, "mkdir in overlay": ok, "rename in overlay": ok,
		"link in overlay": ok, "remove in overlay": ok, "device in overlay": no,
		"list root": ok, "write root": no, "make in root": no, "mkdir in root": no,
		"read host": ok, "write host": no, "truncate host": no, "remove host": no, "write host2": no,
		"out of overlay": unix.EXDEV, // two file systems, which the kernel sees first
		"mount":          unix.EPERM, "unmount": unix.EPERM,
	}
	with := func(changes ...any) map[string]syscall.Errno {
		out := map[string]syscall.Errno{}
		for k, v := range usual {
			out[k] = v
		}
		for i := 0; i < len(changes); i += 2 {
			out[changes[i].(string)] = changes[i+1].(syscall.Errno)
		}
		return out
	}
	tests := []struct {
		name    string
		rules   func(w *world) []Rule
		control bool
		want    map[string]syscall.Errno
	}{
		{"rules on the mounts", func(w *world) []Rule {
			return []Rule{{FD: w.root, Access: Read}, {FD: w.overlay, Access: Write}}
		}, false, usual},
		{"no domain", func(w *world) []Rule { return []Rule{} }, true, func() map[string]syscall.Errno {
			out := map[string]syscall.Errno{}
			for k := range usual {
				out[k] = ok
			}
			out["out of overlay"] = unix.EXDEV
			return out
		}()},
		{"a rule on the host folder holds in its bind mount", func(w *world) []Rule {
			return []Rule{{FD: w.root, Access: Read}, {FD: w.overlay, Access: Write}, {Path: w.hostTwo, Access: Write}}
		}, false, with("write host2", ok)},
		{"rules on the layers do not hold in the overlay", func(w *world) []Rule {
			return []Rule{{FD: w.root, Access: Read}, {Path: w.upper, Access: Write}, {Path: w.lower, Access: Write}}
		}, false, with("change lower", no, "make in overlay", no, "mkdir in overlay", no, "rename in overlay", no,
			"link in overlay", no, "remove in overlay", no)},
		{"the root's rights hold in mounts below it", func(w *world) []Rule {
			return []Rule{{FD: w.root, Access: Write}}
		}, false, with("write root", ok, "make in root", ok, "mkdir in root", ok, "write host", ok, "truncate host", ok, "remove host", ok, "write host2", ok)},
	}
	for _, tt := range tests {
		for _, how := range []string{"pivot", "move"} {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				w := newWorld(t)
				ruleset := create(t, Config{Rules: tt.rules(w)})
				env := []string{"ROOT=" + how, "TOP=" + w.top}
				if tt.control {
					env = append(env, "CONTROL=1")
				}
				got := child(t, "files", &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}, env, w.root, w.overlay, w.bind, w.bind2, ruleset)
				for what, want := range tt.want {
					if got[what] != want {
						t.Errorf("%s: %v, want %v", what, got[what], want)
					}
				}
				if len(got) != len(tt.want) {
					t.Errorf("%d attempts, %d expected", len(got), len(tt.want))
				}
			})
		}
	}
}

// childHost tries to reach processes of the host. Descriptor 3 is the ruleset.
func childHost() map[string]error {
	parent := os.Getppid()
	connect := func(port string) error {
		n, err := strconv.Atoi(os.Getenv(port))
		check(err)
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		check(err)
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}})
	}
	restrict(3)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(err)
	bind, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(err)
	return map[string]error{
		"signal":   unix.Kill(parent, 0),
		"self":     unix.Kill(os.Getpid(), 0),
		"abstract": unix.Connect(fd, &unix.SockaddrUnix{Name: os.Getenv("NAME")}),
		"allowed":  connect("ALLOWED"),
		"other":    connect("OTHER"),
		"bind":     unix.Bind(bind, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		"trace":    trace(parent),
	}
}

// trace attaches to a process of the host and lets it go.
func trace(pid int) error {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/mem", pid), unix.O_RDONLY, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func TestLiveScopesAndPorts(t *testing.T) {
	needABI(t, 6)
	name := fmt.Sprintf("@bailey-landlock-%d", os.Getpid())
	listen := func(network, address string) net.Listener {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	listen("unix", name)
	port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
	allowed, other := port(listen("tcp", "127.0.0.1:0")), port(listen("tcp", "127.0.0.1:0"))
	ruleset := create(t, Config{SignalScope: true, AbstractScope: true, TCP: &TCP{Connect: []uint16{uint16(allowed)}}})
	env := []string{"NAME=" + name, fmt.Sprintf("ALLOWED=%d", allowed), fmt.Sprintf("OTHER=%d", other)}
	for what, errno := range child(t, "host", nil, append(env, "CONTROL=1"), ruleset) {
		if errno != 0 {
			t.Errorf("without the domain, %s: %v", what, errno)
		}
	}
	want := map[string]syscall.Errno{"signal": unix.EPERM, "self": 0, "abstract": unix.EPERM, "allowed": 0, "other": unix.EACCES, "bind": unix.EACCES, "trace": unix.EACCES}
	got := child(t, "host", nil, env, ruleset)
	for what, errno := range want {
		if got[what] != errno {
			t.Errorf("%s: %v, want %v", what, got[what], errno)
		}
	}
}

// childDevices asks a terminal for its number. Descriptor 3 is the ruleset.
func childDevices() map[string]error {
	restrict(3)
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	check(err)
	_, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
	return map[string]error{"ioctl": err}
}

func TestLiveDeviceIoctl(t *testing.T) {
	needABI(t, 5)
	for access, want := range map[Access]syscall.Errno{Write: unix.EACCES, Devices: 0} {
		ruleset := create(t, Config{Rules: []Rule{{Path: "/", Access: Read}, {Path: "/dev", Access: access}}})
		if got := child(t, "devices", nil, nil, ruleset)["ioctl"]; got != want {
			t.Errorf("with %#x: %v, want %v", access, got, want)
		}
	}
}

// TestLiveRuleOnFile gives a single file to a domain.
func TestLiveRuleOnFile(t *testing.T) {
	needABI(t, 3)
	dir := t.TempDir()
	for _, name := range []string{"given", "kept"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ruleset := create(t, Config{Rules: []Rule{{Path: "/", Access: Read}, {Path: dir + "/given", Access: Write}}})
	done := make(chan [2]error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the domain dies with the thread
		restrict(ruleset)
		done <- [2]error{write(dir + "/given"), write(dir + "/kept")}
	}()
	if got := <-done; got[0] != nil || got[1] != unix.EACCES {
		t.Errorf("%v", got)
	}
}
