package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/cgroup"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/landlock"
)

// callersName gives the caller's name, from where ids have their names: a service has
// no USER, and after su it may be somebody else's.
func callersName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

// Host gives the probes that examine this machine for its caller. Sandbox is
// left for who has a driver.
func Host(version, baileyHome string) Probes {
	p := Probes{
		Version: version, UID: os.Geteuid(), User: callersName(), BaileyHome: baileyHome,
		Getenv: os.Getenv, LookPath: lookPath, FileSystem: fileSystem,
		Namespaces: tryNamespaces, MountProc: tryProc, Overlay: tryOverlay,
		Seccomp: trySeccomp, Landlock: landlock.ABI, KVM: tryKVM, Cgroups: detectCgroups,
	}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		p.Executable = exe
	}
	return p
}

// lookPath finds a program on PATH or where administrators' programs are,
// which an ordinary user's PATH may leave out.
func lookPath(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/bin", "/bin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", exec.ErrNotFound
}

func hasXattr(p, name string) bool {
	n, err := unix.Getxattr(p, name, nil)
	return err == nil && n > 0
}

// namespaced gives a child's attributes: new namespaces, in which the caller is
// root and nobody else exists, so that what the child executes keeps its rights
// there. The user namespace comes first, by clone, and the others by
// unshare in the child: a security module that takes the rights away inside a
// user namespace, as AppArmor does on Ubuntu, lets the first pass and stops
// the others.
func namespaced(kinds uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWUSER | kinds&unix.CLONE_NEWPID,
		Unshareflags: kinds &^ unix.CLONE_NEWPID,
		UidMappings:  []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings:  []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:    syscall.SIGKILL,
	}
}

// noProgram does not exist: a child that gets as far as to look for it has
// made all that was to be made, and never runs anything.
const noProgram = "/proc/self/bailey-doctor-has-no-such-program"

func tryNamespaces(context.Context) error {
	_, err := syscall.ForkExec(noProgram, []string{"bailey"}, &syscall.ProcAttr{
		Sys: namespaced(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP),
	})
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err == nil {
		return errors.New("a program ran that does not exist")
	}
	return err
}

// tryMount runs mount(8) in new namespaces, where all that it does ends with it.
func tryMount(ctx context.Context, args ...string) error {
	mount, err := lookPath("mount")
	if err != nil {
		return fmt.Errorf("%w: the program mount is not installed", ErrNotTried)
	}
	cmd := exec.CommandContext(ctx, mount, args...)
	cmd.SysProcAttr = namespaced(unix.CLONE_NEWNS | unix.CLONE_NEWPID)
	if os.Geteuid() == 0 {
		// As root Bailey mounts with the host's rights.
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	}
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return errors.New(clean(first))
	}
	return err
}

func tryProc(ctx context.Context) error {
	return tryMount(ctx, "-t", "proc", "proc", "/proc")
}

// tryOverlay mounts an overlay whose layer is in folder, or where that will
// be made.
func tryOverlay(ctx context.Context, folder string) error {
	at := existing(folder)
	dir, err := os.MkdirTemp(at, ".doctor-")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotTried, err)
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return fmt.Errorf("%w: %w", ErrNotTried, err)
		}
	}
	if strings.ContainsAny(dir, `,:\`) { // these part the options that mount(8) takes
		return fmt.Errorf("%w: the data folder's name has a comma, a colon or a backslash", ErrNotTried)
	}
	opts := "lowerdir=" + dir + "/lower,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if os.Geteuid() != 0 {
		opts += ",userxattr"
	}
	return tryMount(ctx, "-t", "overlay", "-o", opts, "overlay", dir+"/merged")
}

// existing gives the deepest folder on the way to p that exists.
func existing(p string) string {
	if !filepath.IsAbs(p) {
		return os.TempDir()
	}
	for {
		if fi, err := os.Stat(p); err == nil && fi.IsDir() || p == "/" {
			return p
		}
		p = filepath.Dir(p)
	}
}

func trySeccomp() error {
	for _, action := range []struct {
		name string
		code uint32
	}{{"errno", unix.SECCOMP_RET_ERRNO}, {"kill", unix.SECCOMP_RET_KILL_PROCESS}} {
		if err := seccompHas(action.code); err != nil {
			return fmt.Errorf("the kernel's filters cannot do %s: %w", action.name, err)
		}
	}
	return nil
}

// kvmAPI and kvmCreate are KVM_GET_API_VERSION and KVM_CREATE_VM of linux/kvm.h.
const (
	kvmAPI    = 0xae00
	kvmCreate = 0xae01
)

func tryKVM() (int, error) {
	fd, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	version, err := unix.IoctlRetInt(fd, kvmAPI)
	if err != nil {
		return 0, fmt.Errorf("it does not answer as KVM does: %w", err)
	}
	vm, err := unix.IoctlRetInt(fd, kvmCreate)
	if err != nil {
		return version, fmt.Errorf("it makes no machine: %w", err)
	}
	return version, unix.Close(vm)
}

func detectCgroups() Cgroups {
	h := cgroup.Detect("/")
	c := Cgroups{Version: string(h.Mode())}
	for _, s := range h.Status() {
		c.Controllers = append(c.Controllers, Controller{Name: string(s.Controller), Trial: Trial{OK: s.OK, Why: s.Why, Fix: s.Fix}})
	}
	return c
}

// fileSystems are the kinds that a data folder is usually on, by the magic
// number that statfs(2) gives, and whether an overlay's upper layer can be there.
var fileSystems = map[int64]FileSystem{
	unix.EXT4_SUPER_MAGIC:      {Kind: "ext4", Layer: true},
	unix.XFS_SUPER_MAGIC:       {Kind: "xfs", Layer: true},
	unix.BTRFS_SUPER_MAGIC:     {Kind: "btrfs", Layer: true},
	unix.TMPFS_MAGIC:           {Kind: "tmpfs", Layer: true},
	unix.F2FS_SUPER_MAGIC:      {Kind: "f2fs", Layer: true},
	unix.OVERLAYFS_SUPER_MAGIC: {Kind: "overlayfs"},
	unix.NFS_SUPER_MAGIC:       {Kind: "NFS"},
	unix.FUSE_SUPER_MAGIC:      {Kind: "FUSE"},
	unix.V9FS_MAGIC:            {Kind: "9p"},
	unix.SMB2_SUPER_MAGIC:      {Kind: "SMB"},
	unix.MSDOS_SUPER_MAGIC:     {Kind: "vfat"},
	0xca451a4e:                 {Kind: "bcachefs", Layer: true},
	0x2fc12fc1:                 {Kind: "zfs"},
}

func fileSystem(folder string) (FileSystem, error) {
	at := existing(folder)
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return FileSystem{}, err
	}
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		return FileSystem{}, fmt.Errorf("%s cannot be written to: %w", at, err)
	}
	fsys, ok := fileSystems[int64(st.Type)&0xffffffff]
	if !ok {
		fsys.Kind = fmt.Sprintf("a file system of kind %#x", int64(st.Type)&0xffffffff)
	}
	fsys.Free = int64(st.Bavail) * st.Frsize
	return fsys, nil
}
