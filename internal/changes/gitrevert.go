package changes

import (
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// heldByGit gives the git folders that cannot be taken back as a whole, and
// reports each of them.
func (a *applier) heldByGit() (map[gitFolder]bool, error) {
	members := map[gitFolder][]*step{}
	var order []gitFolder
	for _, s := range a.journal.steps {
		if s.Phase != done {
			continue
		}
		if g, ok := a.gitFolderOf(s.Root, s.path()); ok {
			if members[g] == nil {
				order = append(order, g)
			}
			members[g] = append(members[g], s)
		}
	}
	held := map[gitFolder]bool{}
	for _, g := range order {
		at, why, failed := "", "", 0
		back := map[string]bool{} // folders that come back
		for _, s := range members[g] {
			if s.Act == actRmdir || s.Act == actReplace && kindOf(s.Old.Mode) == Dir {
				back[s.path()] = true
			}
		}
		for _, s := range members[g] {
			if err := a.ctx.Err(); err != nil {
				return nil, err
			}
			if w := a.foreseeUndo(s, back); w != "" {
				if failed++; failed == 1 {
					at, why = s.path(), w
				}
			}
		}
		if failed == 0 {
			var err error
			if at, why, err = a.newcomer(g, members[g]); err != nil {
				at, why = g.path, err.Error() // who cannot look cannot delete
			}
		}
		if why == "" {
			continue
		}
		held[g] = true
		a.report.Held += len(members[g])
		if failed > 1 {
			why += fmt.Sprintf(" (and so with %d more)", failed-1)
		}
		a.report.Refused = append(a.report.Refused, Refusal{Root: g.root, Path: at, Why: why, Folder: a.gitName(g), Held: len(members[g])})
	}
	return held, nil
}

// foreseeUndo says why undo would leave a step alone; "" when it would not.
func (a *applier) foreseeUndo(s *step, back map[string]bool) string {
	parent, err := a.parent(s.Root, s.path())
	if err != nil {
		if gone(err) && (s.Act == actAdd || back[path.Dir(s.path())]) {
			return ""
		}
		if gone(err) {
			return "its folder is gone, or is no longer a folder, on the host"
		}
		return err.Error()
	}
	defer unix.Close(parent)
	at, err := lstatAt(parent, path.Base(s.path()))
	if err != nil {
		return err.Error()
	}
	ok := true
	switch s.Act {
	case actAdd:
		ok = at == nil || asLeft(at, s)
	case actReplace:
		ok = asLeft(at, s)
		if ok && kindOf(s.Old.Mode) != Dir && !a.hasOriginal(s) {
			return "its original is gone"
		}
	case actDelete:
		if at != nil {
			return takenSince
		}
		if !a.hasOriginal(s) {
			return "its original is gone"
		}
	case actRmdir:
		if at != nil && kindOf(at.Mode) != Dir {
			return takenSince
		}
	case actChmod:
		ok = at != nil && at.Ino == s.New.Ino && at.Mode == s.New.Mode
	}
	if !ok {
		return changedSince
	}
	return ""
}

// noReference are names in a git folder that hold no reference to an object.
var noReference = map[string]bool{"objects": true, "hooks": true, "info": true, "lfs": true, "config": true, "config.worktree": true,
	"description": true, "COMMIT_EDITMSG": true, "gc.log": true, "gc.pid": true}

// newcomer finds a file that the host has written to a git folder since the
// apply, such as a branch: it may lead to objects that were applied, which must
// then stay.
func (a *applier) newcomer(g gitFolder, steps []*step) (at, why string, err error) {
	known, last, adds := map[string]bool{}, int64(0), false
	for _, s := range steps {
		known[s.path()] = true
		adds = adds || s.Act == actAdd
		if s.New != nil {
			last = max(last, s.New.Ctime)
		}
	}
	if !adds {
		return "", "", nil
	}
	host, err := a.host(g.root)
	if err != nil {
		return "", "", err
	}
	top, err := lstatBelow(host, g.path)
	if err != nil || top == nil || kindOf(top.Mode) != Dir {
		return "", "", err
	}
	var walk func(p string, depth int) (string, error)
	walk = func(p string, depth int) (string, error) {
		if err := a.ctx.Err(); err != nil {
			return "", err
		}
		if depth > maxDepth {
			return "", fmt.Errorf("its folders are nested too deeply")
		}
		fd, err := openBeneath(host, p, dirFlags, a.sameMount(g.root))
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		list, err := names(fd)
		if err != nil {
			return "", err
		}
		for _, n := range list {
			sub := path.Join(p, n)
			if noReference[n] && !strings.Contains("/"+p+"/", "/refs/") || known[sub] && !a.isFolder(fd, n) {
				continue
			}
			st, err := lstatAt(fd, n)
			if err != nil {
				return "", err
			}
			switch {
			case st == nil:
			case kindOf(st.Mode) == Dir:
				if found, err := walk(sub, depth+1); found != "" || err != nil {
					return found, err
				}
			case workspace.IdentityOf(st).Ctime >= last:
				return sub, nil
			}
		}
		return "", nil
	}
	if at, err = walk(g.path, 0); at != "" {
		why = "it was written on the host after the apply, and may need what was applied"
	}
	return at, why, err
}

func (a *applier) isFolder(fd int, name string) bool {
	st, err := lstatAt(fd, name)
	return err == nil && st != nil && kindOf(st.Mode) == Dir
}

// lstatBelow is lstatAt for a path of several names.
func lstatBelow(fd int, rel string) (*unix.Stat_t, error) {
	if rel == "." {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		return &st, err
	}
	parent, err := openParent(fd, rel, false)
	if err != nil {
		if gone(err) {
			return nil, nil
		}
		return nil, err
	}
	defer unix.Close(parent)
	return lstatAt(parent, path.Base(rel))
}
