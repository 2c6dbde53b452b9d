//go:build linux

package cgroup

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Folders are where a group's folders are, for a process that comes later.
type Folders struct {
	V2     string                `json:"v2,omitempty"`
	V1     map[Controller]string `json:"v1,omitempty"`
	Freeze string                `json:"freeze,omitempty"`
}

// Folders gives them.
func (g *Group) Folders() Folders {
	return Folders{V2: g.v2, V1: g.v1, Freeze: g.freeze}
}

// Reopen gives the group of the sandbox called name whose folders another process
// of this owner made, wherever that was in the trees: Host only says what to make
// of them. Folders that are gone are no error, since a group without them is what
// is left to be removed; one that is no group of name's is.
func Reopen(h *Host, name string, f Folders) (*Group, error) {
	g := &Group{host: h, name: name, v2: f.V2, freeze: f.Freeze, v1: map[Controller]string{}}
	for c, dir := range f.V1 {
		g.v1[c] = dir
	}
	if !validName(name) {
		return nil, bailey.Errorf(bailey.CodeUsage, "open the control group", "", "%q is not a name for one", name)
	}
	for _, dir := range g.folders() {
		if !filepath.IsAbs(dir) || filepath.Base(dir) != h.folderOf(name) {
			return nil, bailey.Errorf(bailey.CodeUsage, "open the control group", "", "%q is no folder of %s", dir, name)
		}
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type != unix.CGROUP2_SUPER_MAGIC && fs.Type != unix.CGROUP_SUPER_MAGIC {
			return nil, bailey.Errorf(bailey.CodeUsage, "open the control group", "", "%q lies in no tree of control groups", dir)
		}
	}
	return g, nil
}

// LetDie lets processes that have been killed while the group was frozen end.
// Version 2 does so by itself.
func (g *Group) LetDie() {
	if g.v2 == "" && g.freeze != "" {
		write(g.freeze, "freezer.state", "THAWED")
	}
}
