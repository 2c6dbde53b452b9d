package doctor

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// What Bailey needs of Linux, by the version that brought it: mount_setattr
// and idmapped mounts came with 5.12 and overlays for ordinary users with
// 5.11; idmapped folders below an overlay, for sandboxes that root starts,
// with 5.19.
var (
	kernelNeeded = [2]int{5, 12}
	kernelRoot   = [2]int{5, 19}
)

func (h *host) kernelVersion() Result {
	r := Result{Name: "kernel", Title: "Linux kernel", Status: OK, Value: clean(h.kernel)}
	v, ok := parseKernel(h.kernel)
	switch {
	case !ok:
		r.Status, r.Value, r.Why = Unknown, "unknown", "/proc/sys/kernel/osrelease does not tell"
	case less(v, kernelNeeded):
		r.Status = Missing
		r.Why = fmt.Sprintf("version %d.%d is too old; Bailey needs %d.%d", v[0], v[1], kernelNeeded[0], kernelNeeded[1])
		r.Fix = []Step{{Text: "start a newer kernel"}}
	case h.UID == 0 && less(v, kernelRoot):
		r.Status = Warn
		r.Why = fmt.Sprintf("sandboxes started by root need %d.%d for copy-on-write over the host's folders", kernelRoot[0], kernelRoot[1])
		r.Fix = []Step{{Text: "start a newer kernel, or run Bailey as an ordinary user"}}
	}
	return r
}

// parseKernel reads the first two numbers of a kernel release.
func parseKernel(s string) (v [2]int, ok bool) {
	major, rest, _ := strings.Cut(s, ".")
	minor := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		minor = rest[:i]
	}
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	return [2]int{a, b}, err1 == nil && err2 == nil && a >= 0 && b >= 0
}

func less(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }

func (h *host) overlay() Result {
	r := Result{Name: "overlay", Title: "copy-on-write (overlayfs)"}
	if h.Overlay == nil {
		r.Status, r.Value = Unknown, "not tried"
		return r
	}
	err := h.Overlay(h.ctx, h.BaileyHome)
	known := false
	for _, line := range strings.Split(h.read("/proc/filesystems"), "\n") {
		known = known || strings.TrimPrefix(line, "nodev\t") == "overlay" || line == "\toverlay"
	}
	switch {
	case err == nil:
		r.Status, r.Value = OK, "tried: it works"
		return r
	case errors.Is(err, ErrNotTried):
		r.Status, r.Value, r.Why = Unknown, "not tried", err.Error()
		return r
	}
	r.Status, r.Value, r.Why = Missing, "does not work", err.Error()
	switch {
	case h.report.Result("user-namespaces").Status == Missing:
		r.Why = "it needs user namespaces"
	case !known:
		r.Why = "the kernel has no overlayfs"
		r.Fix = []Step{{Text: "load the module", Command: "sudo modprobe overlay"}}
	case h.confine.overlaid:
		r.Why = "the data folder may itself be on an overlay, which cannot carry another (" + err.Error() + ")"
		r.Fix = []Step{{Text: "put Bailey's data on a volume of the container", Command: "export BAILEY_HOME=/path/on/a/volume"}}
	default:
		r.Fix = []Step{{Text: "put Bailey's data on ext4, xfs, btrfs or tmpfs", Command: "export BAILEY_HOME=/path/on/such/a/disk"}}
	}
	return r
}

func (h *host) seccomp() Result {
	r := Result{Name: "seccomp", Title: "system call filters (seccomp)", Status: Unknown, Value: "not tried"}
	if h.Seccomp == nil {
		return r
	}
	if err := h.Seccomp(); err != nil {
		r.Status, r.Value, r.Why = Missing, "not available", err.Error()
		r.Fix = []Step{{Text: "use a kernel with CONFIG_SECCOMP_FILTER=y"}}
		return r
	}
	r.Status, r.Value = OK, "tried: available"
	return r
}

func (h *host) landlock() Result {
	r := Result{Name: "landlock", Title: "second wall (Landlock)", Status: Unknown, Value: "not tried"}
	if h.Landlock == nil {
		return r
	}
	abi := h.Landlock()
	if abi >= 2 {
		r.Status, r.Value = OK, "version "+strconv.Itoa(abi)
		return r
	}
	r.Status, r.Value = Warn, "not available"
	r.Why = "sandboxes work without it, with one wall less"
	if abi == 1 {
		r.Value, r.Why = "version 1", "Bailey uses it from version 2 on; "+r.Why
	}
	r.Fix = []Step{{Text: "start a kernel with CONFIG_SECURITY_LANDLOCK=y and landlock in the boot parameter lsm="}}
	return r
}

// egress says whether a sandbox can be given a network, which leads to the gate
// only.
func (h *host) egress() Result {
	r := Result{Name: "egress", Title: "network of a sandbox", Status: Unknown, Value: "not tried"}
	if h.Egress == nil {
		return r
	}
	t := h.Egress(h.ctx)
	r.Value, r.Why = t.Value, t.Why
	if t.OK {
		r.Status = OK
		return r
	}
	r.Status, r.Value = Warn, "not available"
	if t.Fix != "" {
		r.Fix = []Step{{Text: t.Fix}}
	}
	return r
}

// gate says what the gate's process gives up before it reads what a sandbox sends.
func (h *host) gate() Result {
	r := Result{Name: "gate", Title: "confinement of the gate", Status: Unknown, Value: "not tried"}
	if h.Gate == nil {
		return r
	}
	list, err := h.Gate(h.ctx)
	if err != nil {
		r.Status, r.Value, r.Why = Warn, "not available", err.Error()
		r.Fix = []Step{{Text: "without a gate, sandboxes have no network"}}
		return r
	}
	var done, missing []string
	for _, text := range list {
		if m, ok := strings.CutPrefix(text, "missing: "); ok {
			missing = append(missing, m)
		} else {
			done = append(done, text)
		}
	}
	r.Status, r.Value = OK, strings.Join(done, "; ")
	if len(missing) > 0 {
		r.Status, r.Why = Warn, "missing: "+strings.Join(missing, "; ")
	}
	return r
}

// cgroups gives one result for the groups and one for each controller.
func (h *host) cgroups() []Result {
	if h.Cgroups == nil {
		return []Result{{Name: "cgroups", Title: "limits (control groups)", Status: Unknown, Value: "not tried"}}
	}
	c := h.Cgroups()
	head := Result{Name: "cgroups", Title: "limits (control groups)", Status: OK, Value: c.Version}
	results := []Result{head}
	missing := 0
	for _, ctl := range c.Controllers {
		r := Result{Name: "cgroup-" + ctl.Name, Title: "limit of " + ctl.Name, Status: OK, Value: "can be enforced", Why: ctl.Why}
		if ctl.Value != "" {
			r.Value = ctl.Value
		}
		if !ctl.OK && ctl.Name == "pids" {
			// RLIMIT_NPROC counts a user's processes, so it serves where a sandbox has
			// one user only.
			r.Value = "held by an rlimit at the process level"
			r.Why = "where a sandbox has several users, --pids needs a control group"
			if ctl.Why != "" {
				r.Why += ": " + ctl.Why
			}
		} else if !ctl.OK {
			missing++
			r.Status, r.Value = Warn, "cannot be enforced"
			if ctl.Fix != "" {
				r.Fix = []Step{{Text: ctl.Fix}}
			}
		}
		results = append(results, r)
	}
	if missing > 0 {
		results[0].Status = Warn
		results[0].Why = "a limit that is asked for and cannot be enforced is refused (limit_unavailable)"
	}
	return results
}

func (h *host) kvm() Result {
	r := Result{Name: "kvm", Title: "virtual machines (KVM)", Status: Unknown, Value: "/dev/kvm was not tried"}
	if h.KVM == nil {
		return r
	}
	version, err := h.KVM()
	if err == nil {
		r.Status, r.Value = OK, "/dev/kvm works"
		r.Why = fmt.Sprintf("API version %d, and an empty machine could be made; that a guest runs is not tried yet", version)
		if version != 12 { // fixed since Linux 2.6.22, see Documentation/virt/kvm/api.rst
			r.Status, r.Value, r.Why = Missing, "/dev/kvm is not usable", fmt.Sprintf("its API version is %d, not 12", version)
		}
		return r
	}
	r.Status, r.Value, r.Why = Info, "/dev/kvm is not usable", err.Error()
	switch {
	case isPermission(err):
		r.Why = "/dev/kvm is there, but this user may not open it"
		r.Fix = []Step{{Text: "join its group, and log in again", Command: "sudo usermod -aG kvm \"$USER\""}}
		if fi, err := os.Stat(path.Join("/", h.Root, "/dev/kvm")); err == nil && fi.Mode().Perm()&0o060 != 0o060 {
			r.Fix = []Step{{Text: "give it to a group, join that, and log in again",
				Command: "sudo groupadd -f kvm && sudo chgrp kvm /dev/kvm && sudo chmod 660 /dev/kvm && sudo usermod -aG kvm \"$USER\""}}
		}
	case isAbsent(err) && h.confine.container != "":
		r.Why = "there is no /dev/kvm in this container"
		r.Fix = []Step{{Text: "pass the device on, if the host has it", Command: "docker run --device /dev/kvm …"}}
	case isAbsent(err):
		r.Why = "there is no /dev/kvm"
		flags := " " + strings.ReplaceAll(h.read("/proc/cpuinfo"), "\n", " ") + " "
		switch {
		case strings.Contains(flags, " vmx "):
			r.Fix = []Step{{Text: "the processor can do it; load the module", Command: "sudo modprobe kvm_intel"}}
		case strings.Contains(flags, " svm "):
			r.Fix = []Step{{Text: "the processor can do it; load the module", Command: "sudo modprobe kvm_amd"}}
		case h.Arch == "amd64":
			r.Why = "there is no /dev/kvm, and the processor does not offer virtualisation"
			r.Fix = []Step{{Text: "turn it on in the firmware; if this is a virtual machine, turn on nested virtualisation where it runs"}}
		}
	}
	return r
}
