package doctor

import (
	"strings"

	"github.com/bailey-sandbox/bailey/internal/mountinfo"
)

// confinement is what already surrounds Bailey.
type confinement struct {
	container string // the kind of container, "" if there is no sign of one
	wsl       int    // the version of the Windows Subsystem for Linux, or 0
	chroot    bool   // the root folder is not a mount's
	filtered  bool   // a seccomp filter is in force
	hasCaps   bool   // CAP_SYS_ADMIN is effective
	profile   string // AppArmor's confinement, "" or "unconfined" if there is none
	maskProc  []string
	overlaid  bool // the root file system is an overlay itself
}

// confinement gathers the signs. Most are hints, since no kernel says "you
// are in a container"; what works is tried.
func (h *host) confinement() confinement {
	var c confinement
	switch release := h.kernel; {
	case strings.Contains(release, "microsoft-standard"), strings.Contains(release, "WSL2"):
		c.wsl = 2
	case strings.HasSuffix(release, "-Microsoft"):
		c.wsl = 1
	}
	c.container = h.containerKind()
	c.profile = h.read("/proc/self/attr/apparmor/current")
	if c.profile == "" && h.exists("/sys/module/apparmor") {
		c.profile = h.read("/proc/self/attr/current")
	}
	c.profile = clean(strings.TrimRight(c.profile, "\x00"))

	for _, line := range strings.Split(h.read("/proc/self/status"), "\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "Seccomp": // 2 is filter mode, see proc_pid_status(5)
			c.filtered = value == "2"
		case "CapEff":
			c.hasCaps = hasBit(value, 21) // CAP_SYS_ADMIN in linux/capability.h
		}
	}

	rootSeen := false
	mounts, err := mountinfo.Parse([]byte(h.read("/proc/self/mountinfo")))
	for _, m := range mounts {
		switch {
		case m.Point == "/":
			rootSeen = true
			c.overlaid = m.FSType == "overlay"
		case strings.HasPrefix(m.Point, "/proc/") && m.Point != "/proc/sys/fs/binfmt_misc":
			c.maskProc = append(c.maskProc, m.Point)
		}
	}
	c.chroot = err == nil && len(mounts) > 0 && !rootSeen
	return c
}

// hasBit says whether a hexadecimal mask has the bit n.
func hasBit(mask string, n int) bool {
	digit := len(mask) - 1 - n/4
	if digit < 0 {
		return false
	}
	v := strings.IndexByte("0123456789abcdef", mask[digit])
	return v >= 0 && v>>(n%4)&1 == 1
}

// containerKind names the container that the signs point to.
func (h *host) containerKind() string {
	dev := h.Getenv("REMOTE_CONTAINERS") != "" || h.Getenv("CODESPACES") != "" || h.Getenv("DEVCONTAINER") != ""
	kind := ""
	switch cgroup := h.read("/proc/1/cgroup") + "\n" + h.read("/proc/self/cgroup"); {
	case h.Getenv("KUBERNETES_SERVICE_HOST") != "" || strings.Contains(cgroup, "kubepods"):
		kind = "Kubernetes"
	case h.exists("/run/.containerenv") || strings.Contains(cgroup, "libpod"):
		kind = "Podman"
	case h.exists("/.dockerenv") || strings.Contains(cgroup, "/docker"):
		kind = "Docker"
	case strings.Contains(cgroup, "/lxc"):
		kind = "LXC"
	case h.exists("/run/systemd/container"):
		kind = clean(h.read("/run/systemd/container"))
	case strings.Contains(cgroup, "containerd"):
		kind = "containerd"
	}
	if dev {
		if kind == "" {
			return "dev container"
		}
		return kind + " (dev container)"
	}
	return kind
}

// surroundings reports them.
func (h *host) surroundings() Result {
	c := h.confine
	r := Result{Name: "surroundings", Title: "surroundings", Status: Info}
	var parts []string
	if c.container != "" {
		parts = append(parts, "signs of a container ("+c.container+")")
	}
	if c.wsl > 0 {
		parts = append(parts, "Windows Subsystem for Linux "+string(rune('0'+c.wsl)))
	}
	if c.chroot {
		parts = append(parts, "a chroot")
	}
	if c.filtered {
		parts = append(parts, "a seccomp filter is in force")
	}
	if len(c.maskProc) > 0 {
		parts = append(parts, "parts of /proc are covered")
	}
	if c.overlaid {
		parts = append(parts, "the root file system is an overlay")
	}
	if c.profile != "" && !strings.HasPrefix(c.profile, "unconfined") {
		parts = append(parts, "AppArmor profile "+c.profile)
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing that confines Bailey itself")
	}
	r.Value = strings.Join(parts, "; ")
	return r
}
