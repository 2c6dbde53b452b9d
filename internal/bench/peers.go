package bench

import (
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/seccomp"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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
		"--clearenv", "--setenv", "PATH", searchPath, "--setenv", "HOME", home,
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
	b.srtEnv = []string{"PATH=" + filepath.Dir(b.srt) + ":" + searchPath, "HOME=" + os.Getenv("HOME")}
}

// srtSettings allow writing to the workspace, and nothing over the network.
const srtSettings = `{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":["."],"denyWrite":[]}}`

// mobyProfile is what docker gives crun; see gen.
//
//go:embed moby-seccomp.json
var mobyProfile []byte

// crunBase is the first host id of crun's containers: of the ranges that Bailey
// uses itself the first, which is not in use while its own sandboxes of this
// process hold theirs by locks only they look at. Nothing is written as these ids
// but in the benchmark's own folder.
const crunBase = 1879048192

// bundle writes the configuration of an OCI bundle for a root file system that
// is mounted when crun starts.
func bundle(dir string, command []string, workdir string) error {
	type object = map[string]any
	caps := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_SETGID", "CAP_SETUID",
		"CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_KILL", "CAP_SYS_CHROOT"}
	var namespaces []object
	for _, kind := range []string{"pid", "network", "ipc", "uts", "mount", "cgroup", "user"} {
		namespaces = append(namespaces, object{"type": kind})
	}
	ids := []object{{"containerID": 0, "hostID": crunBase, "size": 65536}}
	mount := func(kind, at string, options ...string) object {
		return object{"type": kind, "source": kind, "destination": at, "options": options}
	}
	config := object{
		"ociVersion": "1.0.0",
		"root":       object{"path": "rootfs"},
		"hostname":   "bailey",
		"process": object{
			"user": object{"uid": 0, "gid": 0}, "args": command, "cwd": workdir, "noNewPrivileges": true,
			"env":          []string{"PATH=" + searchPath, "HOME=/root", "LANG=" + os.Getenv("LANG")},
			"capabilities": object{"bounding": caps, "effective": caps, "permitted": caps},
			"rlimits":      []object{{"type": "RLIMIT_CORE", "soft": 1, "hard": 1}},
		},
		"mounts": []object{
			mount("proc", "/proc", "nosuid", "noexec", "nodev"),
			mount("tmpfs", "/dev", "nosuid", "mode=755", "size=65536k"),
			mount("devpts", "/dev/pts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
			mount("tmpfs", "/dev/shm", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
			mount("mqueue", "/dev/mqueue", "nosuid", "noexec", "nodev"),
			mount("sysfs", "/sys", "nosuid", "noexec", "nodev", "ro"),
			mount("tmpfs", "/tmp", "nosuid", "nodev", "mode=1777"),
		},
		"linux": object{
			"namespaces": namespaces, "uidMappings": ids, "gidMappings": ids,
			"cgroupsPath": "/bailey-bench-" + strconv.Itoa(os.Getpid()),
			"resources":   object{"memory": object{"limit": limits.Memory, "swap": limits.Memory}, "pids": object{"limit": limits.Pids}},
			"seccomp":     json.RawMessage(mobyProfile),
			"maskedPaths": []string{"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
				"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"},
			"readonlyPaths": []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
}

// prepareRoot has baileyd make the built-in root file system.
func (b *bench) prepareRoot() (*rootfs.Root, error) {
	const what = "prepare the built-in root file system"
	cmd := exec.Command(b.opt.Daemon, "image", "prepare", "--json", "--store", filepath.Join(b.home, "images"), "host")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeImageInvalid, what, "", "%w", err)
	}
	root, err := rootfs.Parse(out)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeImageInvalid, what, "", "%w", err)
	}
	return &root, nil
}
