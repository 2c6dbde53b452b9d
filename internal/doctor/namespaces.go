package doctor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// sysctlFix gives the steps that set a kernel setting now and for good.
func sysctlFix(name, value, brings string) []Step {
	return []Step{{
		Text:    brings,
		Command: "echo '" + name + " = " + value + "' | sudo tee /etc/sysctl.d/60-bailey.conf\nsudo sysctl --system",
	}}
}

// containerFix says how to start the container around Bailey so that it can
// make sandboxes. Each part is named for what it opens.
func (h *host) containerFix() []Step {
	if strings.Contains(h.confine.container, "Kubernetes") {
		return []Step{{
			Text: "let the pod make user namespaces and mount its own /proc; its own user namespace keeps it apart from the node",
			Command: "spec:\n  hostUsers: false\n  containers:\n  - securityContext:\n      procMount: Unmasked\n" +
				"      seccompProfile: {type: Unconfined}\n      appArmorProfile: {type: Unconfined}",
		}}
	}
	program := "docker run"
	if strings.HasPrefix(h.confine.container, "Podman") {
		return []Step{{
			Text:    "start the container around Bailey so that it may make namespaces and mount its own /proc",
			Command: "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL …",
		}}
	}
	step := Step{
		Text:    "start the container around Bailey so that it may make namespaces and mount its own /proc",
		Command: program + " --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined …",
	}
	if strings.Contains(h.confine.container, "dev container") {
		step.Text += " (in devcontainer.json)"
		step.Command = `"runArgs": ["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--security-opt", "systempaths=unconfined"]`
	}
	return []Step{step, {Text: "or run Bailey on the host, outside of the container"}}
}

// nsLimits are the settings below /proc/sys/user that count namespaces.
var nsLimits = []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}

// userNamespaces says whether the caller can make the namespaces of a sandbox.
func (h *host) userNamespaces() Result {
	r := Result{Name: "user-namespaces", Title: "user namespaces"}
	why, fix := h.namespaceSettings()
	if h.Namespaces == nil {
		r.Status, r.Value, r.Why, r.Fix = Unknown, "not tried", why, fix
		if why != "" {
			r.Status, r.Value = Missing, "not available"
		}
		return r
	}
	err := h.Namespaces(h.ctx)
	if err == nil {
		r.Status, r.Value = OK, "tried: they can be made"
		if why != "" && h.UID == 0 {
			// Root passes where others do not.
			r.Value += " by root, but not by ordinary users"
			r.Why, r.Fix = why, fix
		}
		return r
	}
	r.Status, r.Value, r.Why, r.Fix = Missing, "not available", why, fix
	if why == "" {
		r.Why, r.Fix = h.namespaceFailure(err)
	}
	return r
}

// namespaceSettings reads what switches user namespaces off. It gives "" if
// nothing does.
func (h *host) namespaceSettings() (why string, fix []Step) {
	sysctl := func(name string) string { return strings.TrimSpace(h.read("/proc/sys/" + name)) }
	switch {
	case h.confine.wsl == 1:
		return "version 1 of the Windows Subsystem for Linux has no namespaces", []Step{{
			Text: "convert this distribution to version 2 (in PowerShell; wsl -l lists the names)", Command: "wsl --set-version NAME 2"}}
	case h.exists("/proc/self/ns") && !h.exists("/proc/self/ns/user"):
		return "this kernel was built without user namespaces", []Step{{Text: "use a kernel with CONFIG_USER_NS=y"}}
	}
	for _, kind := range nsLimits {
		name := "user/max_" + kind + "_namespaces"
		if sysctl(name) == "0" {
			return "the setting " + strings.ReplaceAll(name, "/", ".") + " is 0: nobody on this host may make such namespaces",
				sysctlFix(strings.ReplaceAll(name, "/", "."), "15000", "allow them, for everybody on this host")
		}
	}
	if h.confine.chroot {
		return "Bailey runs in a chroot, and the kernel makes no user namespaces there", []Step{{Text: "run Bailey outside of the chroot, or enter the folder with pivot_root (systemd-nspawn, podman) instead"}}
	}
	if sysctl("kernel/unprivileged_userns_clone") == "0" {
		return "the setting kernel.unprivileged_userns_clone is 0: only root may make user namespaces on this host",
			append(sysctlFix("kernel.unprivileged_userns_clone", "1", "allow them, for everybody on this host"), h.asRoot()...)
	}
	if sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1" && !h.profileAllows() {
		return "AppArmor restricts user namespaces to programs that have a profile (kernel.apparmor_restrict_unprivileged_userns is 1, as on Ubuntu since 23.10), and bailey has none",
			append(h.appArmorFix(), h.asRoot()...)
	}
	return "", nil
}

// asRoot is the next tier down the road that weakens nothing.
func (h *host) asRoot() []Step {
	if h.UID == 0 {
		return nil
	}
	return []Step{{
		Text:    "or, without changing the host, run Bailey as root: the sandbox then gets ids of its own, none of which is root's on the host",
		Command: "sudo bailey run -- COMMAND",
	}}
}

// namespaceFailure explains a trial that failed though no setting forbids it.
func (h *host) namespaceFailure(err error) (why string, fix []Step) {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EUSERS):
		return "there are too many namespaces, or they are nested too deep (" + err.Error() + ")",
			[]Step{{Text: "see what holds them, and raise user.max_user_namespaces if need be", Command: "lsns -t user"}}
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		if h.confine.container != "" || h.confine.filtered {
			return "what Bailey runs in (" + h.surroundings().Value + ") forbids namespaces (" + err.Error() + ")", h.containerFix()
		}
		return "the kernel refuses without saying why (" + err.Error() + "); a security module such as SELinux may forbid it",
			append([]Step{{Text: "look for the refusal in the kernel's log", Command: "sudo journalctl -k | grep -i -E 'denied|avc'"}}, h.asRoot()...)
	case errors.Is(err, syscall.EINVAL):
		return "this kernel lacks one of the kinds of namespaces (" + err.Error() + ")", []Step{{Text: "use a kernel with CONFIG_NAMESPACES and all that is below it"}}
	case errors.Is(err, syscall.ENOSYS):
		return "something around Bailey hides the system call (" + err.Error() + ")", h.containerFix()
	}
	return err.Error(), nil
}

// procMount says whether a sandbox can have a /proc of its own.
func (h *host) procMount() Result {
	r := Result{Name: "proc-mount", Title: "a /proc of its own"}
	if h.MountProc == nil {
		r.Status, r.Value = Unknown, "not tried"
		return r
	}
	if h.report.Result("user-namespaces").Status == Missing {
		r.Status, r.Value, r.Why = Unknown, "not tried", "it needs user namespaces"
		return r
	}
	err := h.MountProc(h.ctx)
	switch {
	case err == nil:
		r.Status, r.Value = OK, "tried: it can be mounted"
	case errors.Is(err, ErrNotTried):
		r.Status, r.Value, r.Why = Unknown, "not tried", err.Error()
	case len(h.confine.maskProc) > 0:
		r.Status, r.Value = Missing, "cannot be mounted"
		r.Why = fmt.Sprintf("parts of /proc are covered here (%s), and the kernel then refuses to show a whole one (%v)", some(h.confine.maskProc), err)
		r.Fix = h.containerFix()
	default:
		r.Status, r.Value, r.Why, r.Fix = Missing, "cannot be mounted", err.Error(), h.containerFix()
	}
	return r
}

// some gives the first few of a list.
func some(list []string) string {
	if len(list) <= 3 {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:3], ", ") + " and " + strconv.Itoa(len(list)-3) + " more"
}

// ErrNotTried is what a probe gives when it lacks something to try with; the
// host may be fine.
var ErrNotTried = errors.New("it could not be tried")
