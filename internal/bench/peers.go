package bench

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/seccomp"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

// filterFile gives a file with Bailey's filter as bwrap reads it: an array of
// struct sock_filter.
func filterFile() (*os.File, error) {
	prog, err := seccomp.Filter(seccomp.Options{})
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "keep the system call filter", "", "%w", err)
	}
	f := os.NewFile(uintptr(fd), "filter")
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(prog))), len(prog)*int(unsafe.Sizeof(prog[0])))
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, bailey.Errorf(bailey.CodeStorage, "keep the system call filter", "", "%w", err)
	}
	return f, nil
}

// bwrapArgs gives bwrap the protections that the process level has, as far as
// it knows them. fresh is the writable folder that is seen at work. The filter
// is descriptor 3.
func bwrapArgs(bwrap, fresh, work, home string, command ...string) []string {
	args := []string{bwrap, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
		"--die-with-parent", "--new-session", "--cap-drop", "ALL", "--seccomp", "3", "--hostname", "bailey",
		"--clearenv", "--setenv", "PATH", peer.SearchPath, "--setenv", "HOME", home,
		"--ro-bind", "/usr", "/usr"}
	for _, name := range []string{"LANG", "LC_ALL", "TZ"} { // what programs read at their start depends on these
		if v, ok := os.LookupEnv(name); ok {
			args = append(args, "--setenv", name, v)
		}
	}
	for _, p := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if text, err := os.Readlink(p); err == nil {
			args = append(args, "--symlink", text, p)
		} else if _, err := os.Stat(p); err == nil {
			args = append(args, "--ro-bind", p, p)
		}
	}
	args = append(args, "--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", home,
		"--bind", fresh, work, "--chdir", work)
	return append(args, command...)
}

func (b *bench) bwrapFeatures() []string {
	f := []string{"user, mount, pid, net, ipc, uts and cgroup namespaces", "system call filter: Bailey's own, by --seccomp"}
	if b.groups != nil {
		f = append(f, "memory and pids limit: set by the benchmark")
	} else {
		f = append(f, "no memory or pids limit: this user can set none")
	}
	return append(f, "no capabilities, no_new_privs", "no Landlock",
		"workspace: a fresh writable folder on the same disk (this version has no overlay)", "read-only /usr and all of /etc",
		"own HOME and /tmp in memory, own /proc, /dev")
}

// findSRT looks for the sandbox-runtime of npm. It needs a newer Node.js than some
// systems have, so one beside it is preferred.
func (b *bench) findSRT() {
	b.srt = b.opt.SRT
	if b.srt == "" {
		if self, err := os.Executable(); err == nil {
			p := filepath.Join(filepath.Dir(self), "..", "scripts", "npm", "node_modules", ".bin", "srt")
			if _, err := os.Stat(p); err == nil {
				b.srt = p
			}
		}
	}
	if b.srt == "" {
		b.srt, _ = exec.LookPath("srt")
	}
	b.srtEnv = []string{"PATH=" + filepath.Dir(b.srt) + ":" + peer.SearchPath, "HOME=" + os.Getenv("HOME")}
}

// srtSettings allow writing to the workspace, and nothing over the network.
const srtSettings = `{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":["."],"denyWrite":[]}}`

// prepareRoot has baileyd make the built-in root file system.
func (b *bench) prepareRoot() (*rootfs.Root, error) {
	return peer.HostRoot(context.Background(), b.opt.Daemon, filepath.Join(b.home, "images"))
}
