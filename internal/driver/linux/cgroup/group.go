//go:build linux

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// prefix starts the name of every group's folder.
const prefix = "bailey-"

// Group is the control group of one sandbox.
type Group struct {
	host *Host
	name string

	v2     string                // its version 2 folder, or ""
	v1     map[Controller]string // its version 1 folders, one for each limit
	freeze string                // its folder in the version 1 freezer, or ""
	notes  []string
}

// New makes the group of the sandbox called name and sets limits. Of those it
// looks at CPUs, Memory, Pids and IO; zero means none. IO is set for the block
// devices under disks, folders that the sandbox can write to.
//
// name has letters, digits, '.', '_' and '-', at most 64. A group that exists
// already is an error with code busy. When a limit cannot be had the error has
// code limit_unavailable, and nothing is left behind. Where no groups can be
// made at all and no limit is asked for, the Group is there and empty: Enter
// gives nothing, Kill and Freeze say not_available.
func New(h *Host, name string, limits bailey.Limits, disks ...string) (*Group, error) {
	if !validName(name) {
		return nil, bailey.Errorf(bailey.CodeUsage, "make the control group", "", "%q is not a name for one", name)
	}
	set, err := h.plan(limits, disks)
	if err != nil {
		return nil, err
	}
	g := &Group{host: h, name: name, v1: map[Controller]string{}}
	if err := g.make(set); err != nil {
		g.removeAll() // what was made is empty, so this cannot be busy
		return nil, err
	}
	for _, s := range set {
		if err := g.apply(s); err != nil {
			g.removeAll()
			return nil, err
		}
	}
	return g, nil
}

// Open gives the group that New made under name, in this process or another,
// without a look at limits. A name that has no group gives an error with code
// not_found.
func Open(h *Host, name string) (*Group, error) {
	g := &Group{host: h, name: name, v1: map[Controller]string{}}
	if !validName(name) {
		return nil, bailey.Errorf(bailey.CodeUsage, "open the control group", "", "%q is not a name for one", name)
	}
	found := false
	look := func(base string) string {
		if base == "" || !exists(base, h.folderOf(name)) {
			return ""
		}
		found = true
		return filepath.Join(base, h.folderOf(name))
	}
	g.v2, g.freeze = look(h.v2), look(h.freeze)
	for c, base := range h.v1 {
		if dir := look(base); dir != "" {
			g.v1[c] = dir
		}
	}
	if !found {
		return nil, bailey.Errorf(bailey.CodeNotFound, "open the control group", "", "there is none called %s", name)
	}
	return g, nil
}

func validName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

// Name gives the name the group was made under.
func (g *Group) Name() string { return g.name }

// Notes says what a limit does not cover on this host, for people.
func (g *Group) Notes() []string { return slices.Clone(g.notes) }

// make makes the folders that the settings need.
func (g *Group) make(set []setting) error {
	h := g.host
	if h.v2 != "" {
		if h.mode == V2 && len(set) > 0 {
			if err := h.enable(set); err != nil {
				return err
			}
		}
		dir, err := g.mkdir(h.v2)
		if err != nil {
			return err
		}
		g.v2 = dir
	}
	if h.freeze != "" {
		dir, err := g.mkdir(h.freeze)
		if err != nil {
			return err
		}
		g.freeze = dir
	}
	if h.mode == V2 {
		return nil
	}
	for _, s := range set {
		base := h.v1[s.controller]
		if base == "" || g.v1[s.controller] != "" {
			continue
		}
		dir := filepath.Join(base, g.host.folderOf(g.name))
		// Controllers that are mounted together share a folder.
		if !slices.Contains(g.folders(), dir) {
			if _, err := g.mkdir(base); err != nil {
				return err
			}
		}
		g.v1[s.controller] = dir
	}
	return nil
}

func (g *Group) mkdir(base string) (string, error) {
	dir := filepath.Join(base, g.host.folderOf(g.name))
	err := g.host.mkdir(dir)
	switch {
	case err == nil:
		return dir, nil
	case errors.Is(err, os.ErrExist):
		return "", bailey.Errorf(bailey.CodeBusy, "make the control group", "choose another name, or remove the old group", "%s exists already", dir)
	case errors.Is(err, unix.EAGAIN):
		return "", bailey.Errorf(bailey.CodeSetupFailed, "make the control group", "remove groups that are not used, or raise cgroup.max.descendants", "%s may have no more groups below it (%w)", base, err)
	default:
		return "", bailey.Errorf(bailey.CodeSetupFailed, "make the control group", "", "%s: %w", dir, err)
	}
}

// folders lists the group's folders, each once.
func (g *Group) folders() []string {
	var out []string
	add := func(dir string) {
		if dir != "" && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	for _, c := range Controllers {
		add(g.v1[c])
	}
	add(g.freeze)
	add(g.v2)
	return out
}

// controllerDir is the folder in which the controller's files are.
func (g *Group) controllerDir(c Controller) string {
	if g.host.mode == V2 {
		return g.v2
	}
	return g.v1[c]
}

// Entry is what a new process needs to be born into a group.
type Entry struct {
	// V2 is a descriptor for clone3's CLONE_INTO_CGROUP, or -1.
	V2 int
	// V1 are descriptors of tasks files. The child writes "0" to each while it
	// has a single thread.
	V1 []int
}

// Close closes the descriptors. They are close-on-exec too.
func (e *Entry) Close() {
	if e.V2 >= 0 {
		unix.Close(e.V2)
		e.V2 = -1
	}
	for _, fd := range e.V1 {
		unix.Close(fd)
	}
	e.V1 = nil
}

// Enter opens what a child needs to enter the group. It can be called for any
// number of children.
func (g *Group) Enter() (Entry, error) {
	e := Entry{V2: -1}
	fail := func(err error) (Entry, error) {
		e.Close()
		return Entry{V2: -1}, bailey.Errorf(bailey.CodeSetupFailed, "enter the control group", "", "%w", err)
	}
	if g.v2 != "" {
		fd, err := open(g.v2, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return fail(err)
		}
		e.V2 = fd
	}
	for _, dir := range g.folders() {
		if dir == g.v2 {
			continue
		}
		fd, err := open(filepath.Join(dir, "tasks"), unix.O_WRONLY)
		if err != nil {
			return fail(err)
		}
		e.V1 = append(e.V1, fd)
	}
	return e, nil
}

// enable turns on the controllers of set for groups below h.v2, moving the
// processes there out of the way first if need be.
func (h *Host) enable(set []setting) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var want []string
	for _, s := range set {
		if w := "+" + string(s.controller); !h.enabled[s.controller] && !slices.Contains(want, w) {
			want = append(want, w)
		}
	}
	if len(want) == 0 {
		return nil
	}
	on, err := read(h.v2, "cgroup.subtree_control")
	if err != nil {
		return bailey.Errorf(bailey.CodeSetupFailed, "make the control group", "", "%w", err)
	}
	have := strings.Fields(on)
	want = slices.DeleteFunc(want, func(w string) bool { return slices.Contains(have, w[1:]) })
	if len(want) > 0 {
		if err := h.moveDown(); err != nil {
			return err
		}
		if err := write(h.v2, "cgroup.subtree_control", strings.Join(want, " ")); err != nil {
			why := "%w"
			if errors.Is(err, unix.EBUSY) {
				why = "the group has processes in it meanwhile (%w)"
			}
			return bailey.Errorf(bailey.CodeLimitUnavailable, "set limits", "run it as: systemd-run --user --scope -p Delegate=yes -- bailey …", why, err)
		}
	}
	for _, s := range set {
		h.enabled[s.controller] = true
	}
	return nil
}

// moveDown moves the processes of h.self into a group below it.
func (h *Host) moveDown() error {
	if h.self == "" || h.moved {
		return nil
	}
	fail := func(err error) error {
		return bailey.Errorf(bailey.CodeSetupFailed, "make room for control groups", "", "%w", err)
	}
	dir := filepath.Join(h.self, selfName)
	if err := h.mkdir(dir); err != nil && !errors.Is(err, os.ErrExist) {
		return fail(err)
	}
	// A process can fork while we move it; its child is found by another look.
	for range 100 {
		procs, err := pids(h.self)
		if err != nil {
			return fail(err)
		}
		if len(procs) == 0 {
			break
		}
		for _, pid := range procs {
			if err := write(dir, "cgroup.procs", itoa(int64(pid))); err != nil && !errors.Is(err, unix.ESRCH) {
				return fail(err)
			}
		}
	}
	h.moved = true
	return nil
}
