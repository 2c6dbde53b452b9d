package changes

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// A git folder is one thing: a branch without its objects, or an index of
// another commit, is a broken repository. So all that a run did to one is
// applied, or taken back, together; or it is all left alone.

// gitFolder is a repository's own folder: a folder or file called .git, or a
// root that is a repository itself.
type gitFolder struct {
	root int
	path string // "." for the root
}

// gitFolderOf says which git folder a path is in.
func (a *applier) gitFolderOf(root int, p string) (gitFolder, bool) {
	if a.isRepository(root) {
		return gitFolder{root, "."}, true
	}
	for end := 0; end < len(p); end++ {
		rest := p[end:]
		name, _, _ := strings.Cut(rest, "/")
		end += len(name)
		if name == ".git" {
			return gitFolder{root, p[:end]}, true
		}
	}
	return gitFolder{}, false
}

// inGit says whether a change is in a git folder.
func (a *applier) inGit(c *Change) bool {
	_, ok := a.gitFolderOf(c.Root, c.Path)
	return ok
}

// isRepository says whether a root is a git folder: one beside the workspace
// always is, and the workspace may be a bare repository.
func (a *applier) isRepository(root int) bool {
	if root > 0 {
		return true
	}
	if a.bare == nil {
		is := false
		if host, err := a.host(root); err == nil {
			is = true
			for _, name := range []string{"HEAD", "objects", "refs"} {
				st, err := lstatAt(host, name)
				is = is && err == nil && st != nil
			}
		}
		a.bare = &is
	}
	return *a.bare
}

// name gives the git folder for people.
func (a *applier) gitName(g gitFolder) string {
	if g.path == "." {
		return a.roots[g.root].Path
	}
	return g.path
}

// holdGit looks at all that is chosen of git folders before the host is
// touched, and takes a folder out of what is chosen when part of it could not
// be applied.
func (a *applier) holdGit(chosen []bool) error {
	list := a.set.Changes
	members := map[gitFolder][]int{}
	var order []gitFolder
	for i := range list {
		if !chosen[i] {
			continue
		}
		if g, ok := a.gitFolderOf(list[i].Root, list[i].Path); ok {
			if members[g] == nil {
				order = append(order, g)
			}
			members[g] = append(members[g], i)
		}
	}
	for _, g := range order {
		in := map[string]*Change{}
		for _, i := range members[g] {
			in[list[i].Path] = &list[i]
		}
		var first *Change
		var reason string
		var clash bool
		failed := 0
		for _, i := range members[g] {
			if err := a.ctx.Err(); err != nil {
				return err
			}
			why, conflict := a.foresee(&list[i], in)
			if why == "" {
				continue
			}
			if failed++; first == nil {
				first, reason, clash = &list[i], why, conflict
			}
		}
		if first == nil {
			continue
		}
		for _, i := range members[g] {
			chosen[i] = false
		}
		a.report.Held += len(members[g])
		if failed > 1 {
			reason += fmt.Sprintf(" (and so with %d more)", failed-1)
		}
		a.hold(g, first, reason, clash, len(members[g]))
	}
	return nil
}

// hold reports a git folder that is left alone because of one change.
func (a *applier) hold(g gitFolder, c *Change, why string, clash bool, paths int) {
	if clash {
		a.conflict(c, why)
		f := &a.report.Conflicts[len(a.report.Conflicts)-1]
		f.Folder, f.Held = a.gitName(g), paths
		return
	}
	a.refuse(c, why)
	f := &a.report.Refused[len(a.report.Refused)-1]
	f.Folder, f.Held = a.gitName(g), paths
}

// foresee says why a change could not be applied now; "" when it can, or
// when it does no harm that it cannot. clash says that it is a conflict. in is
// all that is to be applied of the same git folder, by path.
func (a *applier) foresee(c *Change, in map[string]*Change) (why string, clash bool) {
	if why := a.unfit(c); why != "" {
		// A repository is whole without sockets, and whoever owns its files.
		if a.opts.Force || c.Is == Socket || c.Op == Modified && c.Owner && !c.TypeChanged() {
			return "", false
		}
		return why, false
	}
	if a.opts.Force || c.Was == Dir && c.Is == Dir {
		return "", false
	}
	parent, err := a.parent(c.Root, c.Path)
	if err != nil {
		if !gone(err) {
			return err.Error(), false
		}
		if c.Op == Deleted && errors.Is(err, unix.ENOENT) || comesWith(c, in) {
			return "", false
		}
		return "its folder is gone, or is no longer a folder, on the host", true
	}
	defer unix.Close(parent)
	name := path.Base(c.Path)
	v, cur, why, err := a.check(parent, name, c)
	switch {
	case err != nil:
		return err.Error(), false
	case v == conflict:
		return why, true
	case v == fits && cur != nil && kindOf(cur.Mode) == Dir && c.Was == Dir:
		return a.foreseeEmpty(parent, name, c, in)
	}
	return "", false
}

// comesWith says whether the folder of a new file is one that is made for it.
func comesWith(c *Change, in map[string]*Change) bool {
	up := in[path.Dir(c.Path)]
	return c.Op != Deleted && up != nil && up.Op != Deleted && up.Is == Dir && up.Was != Dir
}

// foreseeEmpty says whether a folder that is to go will be empty then.
func (a *applier) foreseeEmpty(parent int, name string, c *Change, in map[string]*Change) (why string, clash bool) {
	fd, err := openBeneath(parent, name, dirFlags, a.sameMount(c.Root))
	if err != nil {
		return err.Error(), false
	}
	defer unix.Close(fd)
	list, err := names(fd)
	if err != nil {
		return err.Error(), false
	}
	for _, n := range list {
		if x := in[path.Join(c.Path, n)]; x == nil || x.Op != Deleted {
			return "it holds something that the sandbox did not delete", true
		}
	}
	return "", false
}

// spoil notes that a change which was foreseen could not be applied after all.
func (a *applier) spoil(c *Change) {
	if a.opts.Force {
		return
	}
	if g, ok := a.gitFolderOf(c.Root, c.Path); ok {
		a.spoilt[g] = true
	}
}

// unspoil takes back what this apply did to git folders of which a part could
// not be applied, because the host changed them at that moment. from is the
// journal's first step of this apply.
func (a *applier) unspoil(from int) error {
	if len(a.spoilt) == 0 {
		return nil
	}
	for i := len(a.journal.steps) - 1; i >= from; i-- {
		s := a.journal.steps[i]
		g, ok := a.gitFolderOf(s.Root, s.path())
		if s.Phase != done || !ok || !a.spoilt[g] {
			continue
		}
		why, err := a.undo(s)
		if err != nil {
			return err
		}
		next := undone
		if why != "" {
			next = done
			a.report.Refused = append(a.report.Refused, Refusal{Root: s.Root, Path: s.path(), Why: "applied, and not taken back: " + why})
		} else if s.counted {
			a.report.Done--
			a.report.Held++
		}
		if err := a.journal.note(s, next); err != nil {
			return err
		}
	}
	for g := range a.spoilt {
		mark := func(f *Refusal) {
			if x, ok := a.gitFolderOf(f.Root, f.Path); ok && x == g && f.Folder == "" {
				f.Folder, f.Held = a.gitName(g), max(1, a.report.Held)
			}
		}
		for i := range a.report.Conflicts {
			mark(&a.report.Conflicts[i].Refusal)
		}
		for i := range a.report.Refused {
			mark(&a.report.Refused[i])
		}
	}
	return a.journal.sync()
}
