//go:build linux

package cgroup

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/mountinfo"
)

// Mode says which trees carry a host's groups.
type Mode string

// The modes.
const (
	V2     Mode = "v2"     // one tree with controllers
	Hybrid Mode = "hybrid" // v2 without controllers, v1 for limits
	V1     Mode = "v1"
	None   Mode = "none" // no group can be made; rlimits are all there is
)

// Controller is what bounds or counts one thing.
type Controller string

// The controllers that Bailey uses, by their names in version 2.
const (
	CPU    Controller = "cpu"
	Memory Controller = "memory"
	Pids   Controller = "pids"
	IO     Controller = "io"
)

// Controllers lists them all.
var Controllers = []Controller{CPU, Memory, Pids, IO}

// v1Name gives the controller's name in version 1.
func (c Controller) v1Name() string {
	if c == IO {
		return "blkio"
	}
	return string(c)
}

// Status says whether a controller can bound sandboxes here.
type Status struct {
	Controller Controller
	OK         bool
	Why        string // why not, or what to know if OK
	Fix        string // what to do about it
}

// Host is what Detect found. It is safe for use by several goroutines.
type Host struct {
	mode   Mode
	owner  string // see SetOwner
	status map[Controller]Status
	root   string // the machine's root folder, "" usually

	v2     string // the folder that version 2 groups are made in, "" for none
	v2top  string // the mount point of that tree
	self   string // the caller's own group, to be emptied first, or ""
	v1     map[Controller]string
	freeze string // as v1, for the freezer

	mu      sync.Mutex
	enabled map[Controller]bool // on in v2's subtree_control
	moved   bool

	// mkdir makes the folder of a group. Tests on trees of plain files put
	// there what the kernel would.
	mkdir func(string) error
}

// Detect finds out how this process can make groups. root is the root folder
// of the machine to look at, "/" for this one; below it proc/self/cgroup,
// proc/self/mountinfo and the trees themselves are read. Nothing is changed.
func Detect(root string) *Host {
	h := &Host{
		root: strings.TrimSuffix(root, "/"), mode: None,
		status: map[Controller]Status{}, v1: map[Controller]string{}, enabled: map[Controller]bool{},
		mkdir: func(p string) error { return unix.Mkdir(p, 0o755) },
	}
	membership, err1 := os.ReadFile(h.root + "/proc/self/cgroup")
	text, err2 := os.ReadFile(h.root + "/proc/self/mountinfo")
	mounts, err3 := cgroupMounts(text)
	if err1 != nil || err2 != nil || err3 != nil {
		h.refuseAll("/proc cannot be read", "mount /proc")
		return h
	}
	own := ownGroups(string(membership))
	if len(mounts) == 0 {
		h.refuseAll("no cgroup file system is mounted", "mount cgroup2 on /sys/fs/cgroup; in a container, start it with cgroups visible and writable")
		return h
	}

	var v2mount *mount
	for i := range mounts {
		if mounts[i].v2 {
			v2mount = &mounts[i]
			break
		}
	}
	v1 := map[Controller]*mount{}
	var freezer *mount
	for i := range mounts {
		m := &mounts[i]
		for _, c := range Controllers {
			if !m.v2 && slices.Contains(m.controllers, c.v1Name()) {
				v1[c] = m
			}
		}
		if !m.v2 && slices.Contains(m.controllers, "freezer") {
			freezer = m
		}
	}

	if v2mount != nil {
		h.detectV2(v2mount, own[""], len(v1) > 0)
	}
	for c, m := range v1 {
		h.detectV1(c, m, own[c.v1Name()])
	}
	if freezer != nil && h.v2 == "" {
		if dir, ok := freezer.folder(h.root, own["freezer"]); ok && writable(dir) {
			h.freeze = dir
		}
	}
	for _, c := range Controllers {
		if _, ok := h.status[c]; !ok {
			h.status[c] = Status{Controller: c, Why: "this kernel has no " + string(c) + " controller, or it is turned off", Fix: "boot a kernel with it (on some machines the option is cgroup_enable=" + string(c) + ")"}
		}
	}
	switch {
	case len(h.v1) > 0 && h.v2 != "":
		h.mode = Hybrid
	case len(h.v1) > 0 || h.freeze != "":
		h.mode = V1
	case h.v2 != "":
		h.mode = V2
	}
	return h
}

// SetOwner says whose groups the Host makes, opens and sweeps. Several Baileys
// with data folders of their own can share a machine, and none may take the
// groups of another for leftovers: owner is a word that tells their folders
// apart, of at most 32 letters and digits. It is to be called once, before use.
func (h *Host) SetOwner(owner string) error {
	if len(owner) > 32 || !validName(owner) || strings.ContainsAny(owner, "-_.") {
		return bailey.Errorf(bailey.CodeUsage, "name the owner of control groups", "", "%q is not letters and digits", owner)
	}
	h.owner = owner
	return nil
}

// folderOf gives the name of a group's folder. No group's name has an '@'.
func (h *Host) folderOf(name string) string {
	if h.owner == "" {
		return prefix + name
	}
	return prefix + name + "@" + h.owner
}

// nameOf is the inverse of folderOf; it is false for others' groups.
func (h *Host) nameOf(folder string) (string, bool) {
	name, ok := strings.CutPrefix(folder, prefix)
	if ok && h.owner != "" {
		name, ok = strings.CutSuffix(name, "@"+h.owner)
	}
	return name, ok && validName(name)
}

// Mode says which trees are used.
func (h *Host) Mode() Mode { return h.mode }

// Status tells about each controller, in the order of Controllers.
func (h *Host) Status() []Status {
	out := make([]Status, 0, len(Controllers))
	for _, c := range Controllers {
		out = append(out, h.status[c])
	}
	return out
}

// CanFreeze says whether Group.Freeze works.
func (h *Host) CanFreeze() bool { return h.v2 != "" || h.freeze != "" }

func (h *Host) refuseAll(why, fix string) {
	for _, c := range Controllers {
		h.status[c] = Status{Controller: c, Why: why, Fix: fix}
	}
}

// mount is one mounted cgroup tree.
type mount struct {
	v2          bool
	root        string // the group that is seen as the mount's root
	point       string
	controllers []string // version 1
}

// folder gives the folder of the group at path, which is as /proc shows it.
// It is false when the group lies outside what is mounted.
func (m *mount) folder(root, group string) (string, bool) {
	if group == "" || strings.HasPrefix(group, "/..") {
		return "", false
	}
	rel := group
	if m.root != "/" {
		var ok bool
		if rel, ok = strings.CutPrefix(group+"/", m.root+"/"); !ok {
			return "", false
		}
	}
	return filepath.Join(root, m.point, rel), true
}

// ownGroups reads /proc/self/cgroup: the group by controller, and by "" for
// version 2.
func ownGroups(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			out[c] = f[2]
		}
	}
	return out
}

// cgroupMounts gives the cgroup trees in the text of mountinfo. Of two mounts of
// one tree the first wins.
func cgroupMounts(text []byte) ([]mount, error) {
	all, err := mountinfo.Parse(text)
	if err != nil {
		return nil, err
	}
	var out []mount
	for _, m := range all {
		switch m.FSType {
		case "cgroup2":
			out = append(out, mount{v2: true, root: m.Root, point: m.Point})
		case "cgroup":
			out = append(out, mount{root: m.Root, point: m.Point, controllers: strings.Split(m.Options, ",")})
		}
	}
	return out, nil
}

func (h *Host) detectV1(c Controller, m *mount, own string) {
	dir, ok := m.folder(h.root, own)
	switch {
	case !ok:
		h.status[c] = Status{Controller: c, Why: "the group of this process, " + own + ", lies outside what is mounted on " + m.point, Fix: "run in the host's cgroup namespace, or mount the tree whole"}
	case !writable(dir):
		h.status[c] = Status{Controller: c, Why: "this user may not make groups in " + dir, Fix: "run as root, or boot with the unified hierarchy (systemd.unified_cgroup_hierarchy=1), where groups can be delegated"}
	default:
		h.v1[c] = dir
		s := Status{Controller: c, OK: true}
		if c == IO {
			s.Why = ioGapV1
		}
		h.status[c] = s
	}
}

// selfName is the group that takes the processes of a group that is to have
// children.
const selfName = "bailey.self"

// detectV2 chooses the folder for version 2 groups.
func (h *Host) detectV2(m *mount, own string, hybrid bool) {
	dir, ok := m.folder(h.root, own)
	top := filepath.Join(h.root, m.point)
	if !ok {
		if !hybrid {
			h.refuseAll("the group of this process, "+own+", lies outside what is mounted on "+m.point, "run in the host's cgroup namespace, or mount the tree whole")
		}
		return
	}
	if path.Base(dir) == selfName {
		dir = filepath.Dir(dir) // an earlier Bailey has moved the processes here
	}
	if hybrid {
		// Without controllers, processes and children go together.
		if on, err := read(dir, "cgroup.subtree_control"); err == nil && writable(dir) && writable(dir+"/cgroup.procs") &&
			(on == "" || isTop(dir)) {
			h.v2, h.v2top = dir, top
		}
		return
	}

	var whyOwn string
	for at := dir; ; at = filepath.Dir(at) {
		why, move := judgeV2(at, at == dir)
		if why == "" {
			h.v2, h.v2top = at, top
			if move {
				h.self = at
			}
			break
		}
		if whyOwn == "" {
			whyOwn = why
		}
		if at == top || len(at) <= len(top) {
			fix := "run it as: systemd-run --user --scope -p Delegate=yes -- bailey …; as a service, set Delegate=yes in its unit"
			if os.Geteuid() == 0 {
				fix = "run it as: systemd-run --scope -p Delegate=yes -- bailey …; as a service, set Delegate=yes in its unit; in a container, mount its cgroup tree writable and move its processes into a group below the top"
			}
			h.refuseAll(whyOwn, fix)
			return
		}
	}
	have, _ := read(h.v2, "cgroup.controllers")
	for _, c := range Controllers {
		if slices.Contains(strings.Fields(have), string(c)) {
			h.status[c] = Status{Controller: c, OK: true}
		} else {
			h.status[c] = Status{Controller: c, Why: "the group " + h.v2 + " has not been given the " + string(c) + " controller",
				Fix: delegateFix(c)}
		}
	}
}

// delegateFix is how systemd gives a controller to the services of users; by
// itself it gives them memory and pids only.
func delegateFix(c Controller) string {
	if os.Geteuid() == 0 {
		return "enable it: echo +" + string(c) + " > cgroup.subtree_control in each group from the top down, or set Delegate=" + string(c) + " in the unit"
	}
	return "as root: mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' > /etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload; then log in again"
}

// isTop says whether dir is the root of the whole hierarchy, which alone may
// have both processes and controllers.
func isTop(dir string) bool { return !exists(dir, "cgroup.type") }

// judgeV2 says why groups with controllers cannot be made in dir, or "" if they
// can; move says that dir's processes have to go one level down first.
func judgeV2(dir string, own bool) (why string, move bool) {
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if p := filepath.Join(dir, name); !writable(p) {
			return "this user may not write " + p + " (the group has not been delegated)", false
		}
	}
	if isTop(dir) {
		return "", false
	}
	if kind, err := read(dir, "cgroup.type"); err != nil || kind != "domain" {
		return "the group " + dir + " is of type " + kind + ", not domain", false
	}
	procs, err := pids(dir)
	if err != nil {
		return err.Error(), false
	}
	if len(procs) == 0 {
		return "", false
	}
	if own && (len(procs) == 1 && procs[0] == os.Getpid() || delegated(dir)) {
		return "", true
	}
	return "the group " + dir + " has processes of others in it, so it cannot have groups with limits below it", false
}

// delegated says whether systemd has marked the group as left to its service.
func delegated(dir string) bool {
	var b [8]byte
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, b[:]); err == nil && string(b[:n]) == "1" {
			return true
		}
	}
	return false
}
