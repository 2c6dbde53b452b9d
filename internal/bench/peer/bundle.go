package peer

import (
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
)

//go:generate go run ./gen

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
func bundle(dir, group string, command []string, limits bailey.Limits) error {
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
			"user": object{"uid": 0, "gid": 0}, "args": command, "cwd": "/", "noNewPrivileges": true,
			"env":          []string{"PATH=" + SearchPath, "HOME=/root", "LANG=" + os.Getenv("LANG")},
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
			"cgroupsPath": "/" + group,
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
