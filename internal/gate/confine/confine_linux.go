package confine

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/landlock"
)

// ID is the user and group of a confined process that root has started: the
// number below those that the linux driver gives to sandboxes. Nobody's files
// belong to it.
const ID = 1879048191

// Config says what remains.
type Config struct {
	// Read are files and folders that can still be opened for reading; what is
	// not there is left out. Write are folders in which files can be made,
	// written and removed. As root they and their files are given to ID.
	Read, Write []string
	// Descriptors is the soft limit of open files that is asked for; the hard
	// limit bounds it. 0 leaves it.
	Descriptors uint64
}

// Report says what was given up.
type Report struct {
	Done    []string `json:"done"`
	Missing []string `json:"missing,omitempty"` // and why
}

// Apply confines the process: all its threads, for good. After an error the
// process is in between and must end.
func Apply(c Config) (Report, error) {
	var r Report
	rules, err := openDomain(c, &r)
	if err != nil {
		return r, failed("make the Landlock rules", err)
	}
	if rules >= 0 {
		defer unix.Close(rules)
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"limits", func() error { return limits(c) }},
		{"capabilities", dropBounding},
		{"ids", func() error { return become(c, &r) }},
		{"capabilities", dropCaps},
		{"no_new_privs", func() error { return onAll(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0) }},
		// Changing ids sets it anew, so it comes behind.
		{"not dumpable", func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }},
		{"Landlock", func() error {
			if rules < 0 {
				return nil
			}
			return onAll(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0)
		}},
		{"system calls", filter},
	} {
		if err := step.do(); err != nil {
			return r, failed(step.what, err)
		}
	}
	if err := verify(rules >= 0); err != nil {
		return r, failed("look at what is left", err)
	}
	r.Done = append(r.Done, "no capabilities", "no new privileges", "no core dumps, no tracing", "system calls by an allow list")
	return r, nil
}

func failed(step string, err error) error {
	return bailey.Errorf(bailey.CodeSetupFailed, "confine the gate", "`bailey doctor` says what this host lacks", "%s: %w", step, err)
}

// onAll makes a system call on every thread: Go runs on many, and most rights
// are a thread's.
func onAll(trap, a1, a2, a3 uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(trap, a1, a2, a3, 0, 0, 0); errno != 0 {
		if errno == syscall.ENOTSUP {
			return fmt.Errorf("this program was built with cgo; build it with CGO_ENABLED=0: %w", errno)
		}
		return errno
	}
	return nil
}

func limits(c Config) error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	if c.Descriptors == 0 {
		return nil
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Cur = max(l.Cur, min(c.Descriptors, l.Max))
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

// dropBounding empties the set of what a program could give back.
func dropBounding() error {
	if os.Geteuid() != 0 {
		return nil
	}
	for c := uintptr(0); c <= 63; c++ {
		switch has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); {
		case err == unix.EINVAL: // the kernel knows no more
			return nil
		case err != nil:
			return err
		case has == 0: // all threads began as this one did, and nothing comes back
			continue
		}
		if err := onAll(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != nil {
			return err
		}
	}
	return nil
}

// become takes ids of its own, as root.
func become(c Config, r *Report) error {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, dir := range c.Write {
		if err := give(dir); err != nil {
			return err
		}
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("leave all groups: %w", err)
	}
	if err := syscall.Setresgid(ID, ID, ID); err != nil {
		return fmt.Errorf("take the group %d: %w", ID, err)
	}
	if err := syscall.Setresuid(ID, ID, ID); err != nil {
		return fmt.Errorf("take the user %d: %w", ID, err)
	}
	r.Done = append(r.Done, fmt.Sprintf("user and group %d", ID))
	return nil
}

// give makes a folder and the files in it ID's. The folder comes first: what
// others make in it from then on belongs to its owner.
func give(dir string) error {
	if err := os.Lchown(dir, ID, ID); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if err := os.Lchown(filepath.Join(dir, e.Name()), ID, ID); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func dropCaps() error {
	if err := onAll(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return err
	}
	head, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	return onAll(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&none)), 0)
}

// files is writing files in a folder of one's own, without executing them.
const files = landlock.Write &^ (landlock.Execute | landlock.MakeSock | landlock.MakeFIFO | landlock.MakeSym)

// openDomain makes the Landlock rules while files can still be found. It gives
// -1 on a kernel without Landlock.
func openDomain(c Config, r *Report) (int, error) {
	config := landlock.Config{Rules: []landlock.Rule{}, SignalScope: true, AbstractScope: true}
	for _, path := range c.Read {
		fi, err := os.Lstat(path)
		switch {
		case os.IsNotExist(err):
			continue
		case err != nil:
			return -1, err
		case fi.Mode()&os.ModeSymlink != 0:
			return -1, fmt.Errorf("%s is a link", path)
		}
		config.Rules = append(config.Rules, landlock.Rule{Path: path, Access: landlock.ReadFile | landlock.ReadDir})
	}
	for _, path := range c.Write {
		config.Rules = append(config.Rules, landlock.Rule{Path: path, Access: files})
	}
	abi := landlock.ABI()
	plan := landlock.New(abi, config)
	if plan == nil {
		r.Missing = append(r.Missing, "Landlock: this kernel has none, or it is turned off at boot")
		return -1, nil
	}
	r.Missing = append(r.Missing, plan.Missing...)
	if plan.Attr.Handled_access_fs != 0 {
		r.Done = append(r.Done, fmt.Sprintf("files by Landlock (ABI %d)", abi))
	}
	return plan.Create()
}

// verify looks at what the kernel says of this process now. Each of these is
// something that was done above; a kernel or a security module that answered
// yes and did no is found out here.
func verify(landlocked bool) error {
	for _, p := range []struct {
		name  string
		which int
		want  int
	}{{"no_new_privs", unix.PR_GET_NO_NEW_PRIVS, 1}, {"dumpable", unix.PR_GET_DUMPABLE, 0}, {"seccomp", unix.PR_GET_SECCOMP, 2}} {
		if got, err := unix.PrctlRetInt(p.which, 0, 0, 0, 0); err != nil || got != p.want {
			return fmt.Errorf("%s is %d (%v)", p.name, got, err)
		}
	}
	head, have := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if _, _, errno := unix.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&have)), 0); errno != 0 {
		return errno
	}
	if have != ([2]unix.CapUserData{}) {
		return fmt.Errorf("capabilities are left: %+v", have)
	}
	if r, e, s := getids(); r == 0 || e == 0 || s == 0 {
		return fmt.Errorf("it is still root")
	}
	if landlocked {
		if fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != unix.EACCES {
			if err == nil {
				unix.Close(fd)
			}
			return fmt.Errorf("the root folder can be opened (%v)", err)
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_EXECVE, 0, 0, 0); errno != unix.EPERM {
		return fmt.Errorf("a program could be started (%v)", errno)
	}
	return nil
}

func getids() (r, e, s int) {
	r, e, s = unix.Getresuid()
	return r, e, s
}
