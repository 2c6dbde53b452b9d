package result

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine says where the numbers come from, without a name of it.
type Machine struct {
	Processor  string            `json:"processor"`
	Processors int               `json:"processors"`
	Memory     int64             `json:"memory"` // bytes
	Kernel     string            `json:"kernel"`
	System     string            `json:"system"`
	FileSystem string            `json:"file_system"` // under all folders of the benchmark
	User       string            `json:"user"`        // root or user
	Load       [2]float64        `json:"load"`        // of one minute, before and after
	Programs   map[string]string `json:"programs"`    // versions
}

func Describe(dir string) Machine {
	m := Machine{Processors: runtime.NumCPU(), Processor: runtime.GOARCH, User: "user", Programs: map[string]string{}}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if name := cpuModel(b); name != "" {
			m.Processor = name
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.Memory = MemField(b, "MemTotal")
	}
	if b, err := os.ReadFile("/etc/os-release"); err == nil {
		m.System = osName(b)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) == nil {
		m.FileSystem = fileSystem(int64(st.Type))
	}
	if os.Geteuid() == 0 {
		m.User = "root"
	}
	m.Load[0] = Load()
	return m
}

func Load() float64 {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	f, _ := strconv.ParseFloat(first, 64)
	return f
}

// cpuModel reads the first processor's name from /proc/cpuinfo. Processors
// that have none, as on arm64, give "".
func cpuModel(b []byte) string {
	for line := range bytes.Lines(b) {
		if name, v, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// osName reads PRETTY_NAME from os-release(5).
func osName(b []byte) string {
	for line := range bytes.Lines(b) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "PRETTY_NAME="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return ""
}

// MemField reads a field of /proc/meminfo or /proc/PID/smaps_rollup, in bytes,
// or gives -1.
func MemField(b []byte, name string) int64 {
	for line := range bytes.Lines(b) {
		k, v, ok := strings.Cut(string(line), ":")
		if !ok || k != name {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
		if err != nil {
			return -1
		}
		return n << 10
	}
	return -1
}

func fileSystem(magic int64) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	}
	return fmt.Sprintf("%#x", magic)
}

// ProgramVersion gives the first line of what program --version prints.
func ProgramVersion(program string, env []string) string {
	cmd := exec.Command(program, "--version")
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		return "of unknown version"
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

// String is the machine in one line.
func (m Machine) String() string {
	s := fmt.Sprintf("%d × %s, %.0f GB, Linux %s, %s, %s, as %s, load %.1f to %.1f",
		m.Processors, m.Processor, float64(m.Memory)/1e9, m.Kernel, m.System, m.FileSystem, m.User, m.Load[0], m.Load[1])
	for _, name := range []string{"bwrap", "crun", "srt", "git", "mitmproxy", "nginx"} {
		if v := m.Programs[name]; v != "" {
			s += ", " + v
		}
	}
	return s
}
