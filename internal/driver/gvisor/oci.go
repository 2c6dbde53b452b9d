package gvisor

import (
	"strings"

	"github.com/bailey-sandbox/bailey/internal/driver"
)

// The parts of the OCI runtime specification's config.json (version 1) that are used.
type (
	ociSpec struct {
		Version  string     `json:"ociVersion"`
		Process  ociProcess `json:"process"`
		Root     ociRoot    `json:"root"`
		Hostname string     `json:"hostname"`
		Mounts   []ociMount `json:"mounts"`
		Linux    ociLinux   `json:"linux"`
	}
	ociProcess struct {
		Terminal     bool            `json:"terminal,omitempty"`
		ConsoleSize  *ociSize        `json:"consoleSize,omitempty"`
		User         ociUser         `json:"user"`
		Args         []string        `json:"args"`
		Env          []string        `json:"env"`
		Cwd          string          `json:"cwd"`
		Capabilities ociCapabilities `json:"capabilities"`
		Rlimits      []ociRlimit     `json:"rlimits,omitempty"`
		NoNewPrivs   bool            `json:"noNewPrivileges"`
	}
	ociSize struct {
		Height uint `json:"height"`
		Width  uint `json:"width"`
	}
	ociUser struct {
		UID   int `json:"uid"`
		GID   int `json:"gid"`
		Umask int `json:"umask"`
	}
	ociCapabilities struct {
		Bounding    []string `json:"bounding"`
		Effective   []string `json:"effective"`
		Permitted   []string `json:"permitted"`
		Inheritable []string `json:"inheritable"`
		Ambient     []string `json:"ambient"`
	}
	ociRlimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	ociRoot struct {
		Path string `json:"path"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	ociNamespace struct {
		Type string `json:"type"`
		Path string `json:"path,omitempty"`
	}
	ociLinux struct {
		Namespaces []ociNamespace `json:"namespaces"`
	}
)

// capabilities are root's inside, as in a container: what they allow is gVisor's
// kernel's to do.
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_KILL", "CAP_SYS_CHROOT",
}

// oci says what runsc runs.
func (c *aCell) oci() ociSpec {
	in := c.inner
	p := ociProcess{
		User: ociUser{UID: in.User.UID, GID: in.User.GID, Umask: 0o022}, Args: in.Entry.Command, Env: in.Env, Cwd: in.Workdir,
		Capabilities: ociCapabilities{Bounding: capabilities, Effective: []string{}, Permitted: []string{}, Inheritable: []string{}, Ambient: []string{}},
		NoNewPrivs:   true,
		Rlimits:      []ociRlimit{{"RLIMIT_NOFILE", 65536, 1024}, {"RLIMIT_CORE", 0, 0}},
	}
	if t := in.Entry.Terminal; t != nil {
		p.Terminal, p.ConsoleSize = true, &ociSize{Height: uint(t.Rows), Width: uint(t.Cols)}
	}
	if in.Entry.Agent != "" {
		p.Args, p.Cwd = []string{initAt, "--stdio"}, "/"
		p.Env = []string{"GOMAXPROCS=1", "GOGC=50"}
	}
	if p.User.UID == 0 {
		p.Capabilities.Effective, p.Capabilities.Permitted = capabilities, capabilities
	}
	host := in.Hostname
	if host == "" {
		host = in.ID
	}
	return ociSpec{
		Version: "1.0.2", Process: p, Root: ociRoot{Path: rootAt}, Hostname: host,
		Mounts: append([]ociMount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/tmp", Type: "bind", Source: rootAt + "/tmp", Options: []string{"rbind"}},
		}, c.shared()...),
		// Without a path, runsc makes its own of the kinds that are named. The network's
		// is the one it is started in: the cell's.
		Linux: ociLinux{Namespaces: []ociNamespace{{Type: "pid"}, {Type: "ipc"}, {Type: "uts"}, {Type: "mount"}, {Type: "network", Path: "/proc/self/ns/net"}}},
	}
}

// shared are the places whose content others may change as well: gVisor asks the
// host about them each time, where it takes the rest for its own. And what lies
// below gVisor's own mounts.
func (c *aCell) shared() (mounts []ociMount) {
	add := func(target string, readOnly bool) {
		m := ociMount{Destination: target, Type: "bind", Source: rootAt + target, Options: []string{"rbind", "rw"}}
		if readOnly {
			m.Options[1] = "ro"
		}
		mounts = append(mounts, m)
	}
	for _, p := range c.inner.Root.Places {
		if p.Kind == driver.Bind || strings.HasPrefix(p.Target, "/tmp/") && p.Kind != driver.Dir && p.Kind != driver.File && p.Kind != driver.Symlink {
			add(p.Target, p.ReadOnly)
		}
	}
	if c.inner.Entry.Agent != "" {
		add(initAt, true)
	}
	return mounts
}
