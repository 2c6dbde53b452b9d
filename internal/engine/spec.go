package engine

import (
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/hostview"
)

// Bounds of a spec.
const (
	maxKey    = 128 // bytes of an idempotency key
	maxLabels = 64
	maxEnv    = 1024
	maxText   = 32 << 10 // bytes of a variable's value
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// checkSpec refuses a spec that makes no sense, or that the caller may not ask
// for, before anything of it is done.
func checkSpec(who Caller, s api.SandboxSpec) error {
	bad := func(fix, format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, "create a sandbox", fix, format, args...)
	}
	if len(s.IdempotencyKey) > maxKey {
		return bad("use at most 128 bytes", "the idempotency key is too long")
	}
	if s.Name != "" && (!nameForm.MatchString(s.Name) || hostnameOf(s.Name) == "") {
		return bad("use letters, digits, dots, dashes and underscores, at most 63", "%q cannot be a name", s.Name)
	}
	if len(s.Labels) > maxLabels || len(s.Env) > maxEnv {
		return bad("use at most 64 labels and 1024 variables", "there are too many of them")
	}
	for k, v := range s.Labels {
		if k == "" || len(k) > 128 || len(v) > 1024 {
			return bad("use keys of 1 to 128 bytes and values of at most 1024", "the label %.40q is too long", k)
		}
	}
	for name, value := range s.Env {
		if err := hostview.CheckEnvName(name); err != nil {
			return err
		}
		if len(value) > maxText || strings.IndexByte(value, 0) >= 0 {
			return bad("", "the value of the variable %s is too long or has a NUL byte in it", name)
		}
	}
	from := 0
	for _, f := range []string{s.Template, s.Image, s.Snapshot} {
		if f != "" {
			from++
		}
	}
	if from > 1 {
		return bad("leave all but one out", "a template, an image and a snapshot exclude each other")
	}
	if s.Workdir != "" && (!path.IsAbs(s.Workdir) || path.Clean(s.Workdir) != s.Workdir) {
		return bad("", "the working folder %q is not an absolute path", s.Workdir)
	}
	if !who.Local && (s.Workspace != "" || len(s.Mounts) > 0) {
		return bailey.Errorf(bailey.CodeForbidden, "show a folder of the host", "use the unix socket on the host itself, or a volume",
			"callers from elsewhere may not name folders of the host")
	}
	if s.Workspace != "" && !path.IsAbs(s.Workspace) {
		return bad("give an absolute path", "the workspace %q is relative", s.Workspace)
	}
	for _, m := range s.Mounts {
		mount, err := hostview.ParseMount(m, "/", "/")
		if err != nil {
			return err
		}
		if !path.IsAbs(mount.Source) {
			return bad("give an absolute path", "the mount %q is relative", m)
		}
	}
	for _, v := range s.Volumes {
		if v.Volume == "" || !path.IsAbs(v.Target) || path.Clean(v.Target) != v.Target || v.Target == "/" {
			return bad("name a volume and an absolute path that is not /", "the volume %q cannot be shown at %q", v.Volume, v.Target)
		}
	}
	for _, a := range []api.Action{s.OnTimeout, s.OnIdle} {
		if a != "" && a != api.ActionPause && a != api.ActionStop && a != api.ActionKill {
			return bad("use pause, stop or kill", "there is no action %q", a)
		}
	}
	if s.Lease != nil && s.Lease.TTL <= 0 {
		return bad("give how long it lasts without being renewed", "a lease of no length makes no sense")
	}
	if _, _, err := idsOf(s.User, bailey.IsolationContainer); err != nil {
		return err
	}
	return checkLimits(s.Limits)
}

// checkLimits refuses limits that are no amounts.
func checkLimits(l bailey.Limits) error {
	if l.CPUs < 0 || math.IsNaN(l.CPUs) || math.IsInf(l.CPUs, 0) || l.Memory < 0 || l.Pids < 0 || l.Disk < 0 || l.IO < 0 || l.Output < 0 || l.Timeout < 0 {
		return bailey.Errorf(bailey.CodeUsage, "set the limits", "use numbers greater than 0, or leave them out", "a limit is less than nothing")
	}
	return nil
}

// idsOf reads uid[:gid]; -1 is not said. Names are looked up inside, once it runs.
func idsOf(user string, level bailey.Isolation) (uid, gid int, err error) {
	uid, gid = -1, -1
	name, group, both := strings.Cut(user, ":")
	if level != bailey.IsolationProcess {
		return uid, gid, nil // bailey-init is root inside, and commands are who they are said to be
	}
	for _, p := range []struct {
		text string
		to   *int
		said bool
	}{{name, &uid, user != ""}, {group, &gid, both}} {
		if !p.said {
			continue
		}
		n, err := strconv.ParseUint(p.text, 10, 16)
		if err != nil {
			return 0, 0, bailey.Errorf(bailey.CodeUsage, "use the user "+user, "write uid or uid:gid, each at most 65535", "at the process level there are no other users")
		}
		*p.to = int(n)
	}
	return uid, gid, nil
}
