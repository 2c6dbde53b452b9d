package changes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// maxExecBytes bounds, in bytes, what SnapshotExecClass copies of one root.
const maxExecBytes = 1 << 30

// ExecSnapshot is what a root's files of the executes-on-host class were
// before a run that writes straight through, with copies of them in the run's
// folder.
type ExecSnapshot struct {
	run    *folder.Run
	roots  []folder.Root
	files  []map[string]execFile // by root and path
	hooks  []string              // by root: core.hooksPath below it, or ""
	copies int                   // the folder of copies
	n      int
}

type execFile struct {
	id   workspace.Identity
	copy string // a name in the folder of copies
}

// Found is one path of the class that a run has added, changed or deleted
// although it wrote straight through.
type Found struct {
	Root  int
	Path  string
	Op    Op
	Class string
}

const execCopies = "exec-class"

// SnapshotExecClass records, and copies into the run's folder, all files of
// the class in the roots, before a run whose writes go straight to the host.
// named says which paths the person has allowed to be written; it may be nil.
// Close it when done.
func SnapshotExecClass(ctx context.Context, run *folder.Run, roots []folder.Root, named func(root int, path string) bool) (*ExecSnapshot, error) {
	dir := filepath.Join(run.Dir(), execCopies)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, scanError(err)
	}
	fd, err := unix.Open(dir, dirFlags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, scanError(err)
	}
	s := &ExecSnapshot{run: run, roots: roots, copies: fd}
	for i, root := range roots {
		files := map[string]execFile{}
		s.files = append(s.files, files)
		total := int64(0)
		w := classWalk{ctx: ctx, root: root, index: i, named: named}
		err := w.all(func(dirfd int, name, p string, st *unix.Stat_t) error {
			f := execFile{id: workspace.IdentityOf(st)}
			switch kindOf(st.Mode) {
			case File, Symlink, FIFO:
			default:
				return nil
			}
			if total += st.Size; total > maxExecBytes {
				return bailey.Errorf(bailey.CodeWorkspaceRefused, "guard what executes on the host", "run without --writable",
					"such files in %s have more than %d bytes", root.Path, int64(maxExecBytes))
			}
			f.copy = strconv.Itoa(s.n)
			s.n++
			if err := copyAcross(ctx, dirfd, name, s.copies, f.copy); err != nil {
				return err
			}
			files[p] = f
			return nil
		})
		s.hooks = append(s.hooks, w.hooks)
		if err != nil {
			s.Close()
			return nil, scanError(err)
		}
	}
	return s, nil
}

// Close lets go of the snapshot and removes its copies.
func (s *ExecSnapshot) Close() error {
	unix.Close(s.copies)
	return folder.RemoveTree(filepath.Join(s.run.Dir(), execCopies))
}

// FindNewExecClass gives the paths of the class that differ from the
// snapshot, ordered. named is as for SnapshotExecClass. The command may have
// left folders that cannot be looked into: an error names them, and what was
// found elsewhere is given all the same, for Quarantine.
func (s *ExecSnapshot) FindNewExecClass(ctx context.Context, named func(root int, path string) bool) ([]Found, error) {
	var list []Found
	var closed []string
	for i, root := range s.roots {
		seen := map[string]bool{}
		add := func(p string, op Op) {
			class, _ := ExecutesOnHost(classPath(i, p))
			if class == "" { // where git looks by its config, or since it is in a repository
				class = "git_hook"
				if _, c := inRepository(p); c != "" {
					class = c
				}
			}
			list = append(list, Found{i, p, op, class})
		}
		var dark []string // folders that cannot be looked into
		w := classWalk{ctx: ctx, root: root, index: i, named: named, before: s.hooks[i], closed: func(p string, err error) {
			dark = append(dark, p+"/")
			closed = append(closed, Printable(filepath.Join(root.Path, p))+": "+Printable(err.Error()))
		}}
		err := w.all(func(dir int, name, p string, st *unix.Stat_t) error {
			seen[p] = true
			old, was := s.files[i][p]
			if !was {
				add(p, Added)
			} else if !workspace.IdentityOf(st).Same(old.id) && !s.restored(dir, name, st, old) {
				add(p, Modified)
			}
			return nil
		})
		if err != nil {
			return nil, scanError(err)
		}
		for p := range s.files[i] {
			inDark := slices.ContainsFunc(dark, func(dir string) bool { return strings.HasPrefix(p, dir) })
			if !seen[p] && !inDark {
				add(p, Deleted)
			}
		}
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Root != list[j].Root {
			return list[i].Root < list[j].Root
		}
		return workspace.ComparePaths(list[i].Path, list[j].Path) < 0
	})
	return list, several("look into all folders for what would execute on the host", closed)
}

// restored says whether a file is what takeBack puts in its place: another file
// than before the run, and like it in all that can be seen. A Bailey that goes
// on where another failed has nothing to do there.
func (s *ExecSnapshot) restored(dir int, name string, st *unix.Stat_t, old execFile) bool {
	id := workspace.IdentityOf(st)
	id.Dev, id.Ino, id.Ctime = old.id.Dev, old.id.Ino, old.id.Ctime
	if !id.Same(old.id) || kindOf(st.Mode) != File || st.Nlink != 1 {
		return false
	}
	now, _, err := openFile(dir, name, false)
	if err != nil {
		return false
	}
	defer now.Close()
	was, _, err := openFile(s.copies, old.copy, true)
	if err != nil {
		return false
	}
	defer was.Close()
	same, err := sameContent(now, was, make([]byte, 64<<10))
	return err == nil && same
}

// several makes one error of what went wrong at several paths; nil of none.
func several(what string, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	const most = 20
	more := ""
	if n := len(paths) - most; n > 0 {
		paths, more = paths[:most], " and "+strconv.Itoa(n)+" more"
	}
	return bailey.Errorf(bailey.CodeStorage, what, "look at them before any tool does", "%s%s", strings.Join(paths, ", "), more)
}

// Quarantine moves what was found off the host into layers of the run, and
// puts back what was there before, so that the run's change set holds it and
// a person can apply it. It adds a root in overlay mode to the run's record
// for each root concerned, and saves the record. A path that cannot be taken
// back holds up no other: the error names each. The caller holds the run's
// lock, and every process of the run has ended.
func (s *ExecSnapshot) Quarantine(ctx context.Context, found []Found) error {
	const what = "take back what would execute on the host"
	run := s.run
	s.free()
	layers := map[int]int{} // by root: index into the record's roots
	var left []string
	for _, f := range found {
		at, ok := layers[f.Root]
		if !ok {
			var err error
			if at, err = s.newLayer(f.Root); err != nil {
				return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
			}
			layers[f.Root] = at
		}
		if err := s.takeBack(ctx, f, run.Record.Roots[at]); err != nil {
			left = append(left, Printable(filepath.Join(s.roots[f.Root].Path, f.Path))+": "+Printable(err.Error()))
		}
	}
	// What was put back just now is what the layer is over.
	for _, at := range layers {
		run.Record.Roots[at].Since = time.Now().UTC()
	}
	return errors.Join(several(what, left), run.Save())
}

func (s *ExecSnapshot) newLayer(root int) (int, error) {
	r := s.roots[root]
	r.Mode, r.UserXattr = folder.ModeOverlay, os.Geteuid() != 0
	r.Why = "files that execute on the host, taken back from a run that wrote straight through"
	r.Layer = "layers/exec-" + strconv.Itoa(root)
	if at := slices.IndexFunc(s.run.Record.Roots, func(have folder.Root) bool { return have.Layer == r.Layer }); at >= 0 {
		return at, nil // made by one that failed half-way
	}
	dir, err := s.run.LayerDir()
	if err != nil {
		return 0, err
	}
	upper := workspace.Upper(dir, r)
	if err := os.MkdirAll(upper, 0o700); err != nil {
		return 0, err
	}
	host, err := openRoot(r)
	if err != nil {
		return 0, err
	}
	defer unix.Close(host)
	if err := likeDir(host, ".", upper); err != nil {
		return 0, err
	}
	s.run.Record.Roots = append(s.run.Record.Roots, r)
	return len(s.run.Record.Roots) - 1, nil
}

// likeDir gives the folder at path the mode and owner of a folder on the
// host, so that it shows as no change.
func likeDir(host int, name, path string) error {
	st, err := lstatAt(host, name)
	if err != nil || st == nil {
		return errors.Join(err, fs.ErrNotExist)
	}
	if err := os.Lchown(path, int(st.Uid), int(st.Gid)); err != nil && os.Geteuid() == 0 {
		return err
	}
	xattrs, err := workspace.Xattrs(procPath(host, name))
	if err != nil {
		return err
	}
	for _, x := range xattrs {
		if err := unix.Lsetxattr(path, x.Name, x.Value, 0); err != nil && os.Geteuid() == 0 {
			return err
		}
	}
	return unix.Chmod(path, st.Mode&metaModes)
}

// takeBack moves one file into the layer and restores what was there.
func (s *ExecSnapshot) takeBack(ctx context.Context, f Found, root folder.Root) error {
	host, err := openRoot(root)
	if err != nil {
		return err
	}
	defer unix.Close(host)
	parent, release, err := openClosed(host, path.Dir(f.Path))
	defer release()
	if err != nil && !(gone(err) && f.Op == Deleted) {
		return err
	}
	name := path.Base(f.Path)
	old, was := s.files[f.Root][f.Path]
	if f.Op == Deleted {
		if err != nil || !was {
			// Its folder went with it: that was written straight through,
			// and a file that is gone executes nowhere.
			return nil
		}
		if err := copyAcross(ctx, s.copies, old.copy, parent, name); err != nil {
			return err
		}
		to, err := s.layerDir(host, f.Path, root)
		if err != nil {
			return err
		}
		defer unix.Close(to)
		return unix.Mknodat(to, name, unix.S_IFCHR, 0) // a whiteout
	}
	// Off the host first, under no name that any tool looks at, whatever becomes
	// of the rest; a file that is swapped at this moment is moved all the same.
	temp := tempName(s.run.ID(), s.n) + "-exec"
	s.n++
	if err := moveFree(parent, name, temp); err != nil {
		return err
	}
	if was {
		if err := copyAcross(ctx, s.copies, old.copy, parent, name); err != nil {
			unix.Unlinkat(parent, name, 0) // no half of it
			return fmt.Errorf("it is now called %s, and what was there could not be put back: %w", temp, err)
		}
	}
	to, err := s.layerDir(host, f.Path, root)
	if err != nil {
		return fmt.Errorf("it is now called %s: %w", temp, err)
	}
	defer unix.Close(to)
	err = unix.Renameat(parent, temp, to, name)
	if errors.Is(err, unix.EXDEV) {
		if err = copyAcross(ctx, parent, temp, to, name); err == nil {
			err = unix.Unlinkat(parent, temp, 0)
		}
	}
	return err
}

// layerDir makes the folders that lead to a path in the layer, each like the
// host's, and opens the last.
func (s *ExecSnapshot) layerDir(host int, p string, root folder.Root) (int, error) {
	layers, err := s.run.LayerDir()
	if err != nil {
		return -1, err
	}
	upper := workspace.Upper(layers, root)
	rel := path.Dir(p)
	if rel != "." {
		at := "."
		for rest := rel; rest != ""; {
			var part string
			part, rest = cutPath(rest)
			at = path.Join(at, part)
			dir := filepath.Join(upper, at)
			if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
				continue
			} else if err != nil {
				return -1, err
			}
			parent, err := openParent(host, at, false)
			if err != nil {
				return -1, err
			}
			err = likeDir(parent, path.Base(at), dir)
			unix.Close(parent)
			if err != nil {
				return -1, err
			}
		}
	}
	return unix.Open(filepath.Join(upper, rel), dirFlags|unix.O_CLOEXEC, 0)
}

func cutPath(p string) (first, rest string) {
	for i := range len(p) {
		if p[i] == '/' {
			return p[:i], p[i+1:]
		}
	}
	return p, ""
}

func classPath(root int, p string) string {
	if root > 0 {
		return ".git/" + p
	}
	return p
}

// classWalk looks for the files of the class below a root. It looks into all
// folders and follows no link.
type classWalk struct {
	ctx   context.Context
	root  folder.Root
	index int
	named func(root int, path string) bool // what to pass over; may be nil
	// closed is told of a folder that cannot be looked into; with nil that ends
	// the walk.
	closed func(p string, err error)

	// before is what hooks was in a snapshot. The config of git is itself of the
	// class: what it says now may be gone when it has been taken back.
	before string
	hooks  string // core.hooksPath below the root, or ""
	do     func(dir int, name, p string, st *unix.Stat_t) error
}

// all calls do for every file of the class that is not named.
func (w *classWalk) all(do func(dir int, name, p string, st *unix.Stat_t) error) error {
	host, err := openRoot(w.root)
	if err != nil {
		return err
	}
	defer unix.Close(host)
	w.hooks, w.do = hooksPath(host, w.index), do
	return w.folder(host, "", 0)
}

func (w *classWalk) folder(fd int, rel string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	list, err := names(fd)
	if depth > maxDepth {
		err = errors.New("folders are nested too deep")
	}
	if err != nil {
		return w.dark(rel, err)
	}
	sort.Strings(list)
	for _, n := range list {
		p := path.Join(rel, n)
		st, err := lstatAt(fd, n)
		if err != nil {
			return w.dark(rel, err)
		}
		if st == nil {
			continue
		}
		if kindOf(st.Mode) == Dir {
			if err := w.below(fd, n, p, depth); err != nil {
				return err
			}
			continue
		}
		_, ok := ExecutesOnHost(classPath(w.index, p))
		if dir, class := inRepository(p); !ok && class != "" {
			ok = w.repository(fd, rel, dir)
		}
		for _, hooks := range []string{w.hooks, w.before} {
			ok = ok || hooks != "" && strings.HasPrefix(p, hooks+"/")
		}
		if ok && (w.named == nil || !w.named(w.index, p)) {
			if err := w.do(fd, n, p, st); err != nil {
				return err
			}
		}
	}
	return nil
}

// repository says whether dir, which is the folder fd at rel or the one that
// holds it, has the file HEAD.
func (w *classWalk) repository(fd int, rel, dir string) bool {
	head := "HEAD"
	if dir != path.Clean(rel) {
		head = "../HEAD"
	}
	var st unix.Stat_t
	return unix.Fstatat(fd, head, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// below looks into one folder. Where the command has closed it, it is opened
// for as long as that takes.
func (w *classWalk) below(fd int, name, p string, depth int) error {
	if w.closed != nil {
		_, release, err := openClosed(fd, name)
		defer release()
		if err != nil {
			return w.dark(p, err)
		}
	}
	sub, err := openBeneath(fd, name, dirFlags, false)
	if err != nil {
		return w.dark(p, err)
	}
	defer unix.Close(sub)
	return w.folder(sub, p, depth+1)
}

func (w *classWalk) dark(p string, err error) error {
	if w.closed == nil {
		return &os.PathError{Op: "open", Path: p, Err: err}
	}
	w.closed(p, err)
	return nil
}

// openClosed opens the folder rel below fd, as O_PATH. Folders of this user's
// own on the way that a command of the same user has closed to itself are open
// until release, which also closes the descriptor.
func openClosed(fd int, rel string) (dir int, release func(), err error) {
	var undo []func()
	release = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	for rest := rel; rest != ""; {
		var name string
		name, rest = cutPath(rest)
		at, err := openBeneath(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, false)
		if err != nil {
			return -1, release, err
		}
		undo = append(undo, func() { unix.Close(at) })
		var st unix.Stat_t
		if err := unix.Fstat(at, &st); err != nil {
			return -1, release, err
		}
		if st.Mode&0o700 != 0o700 && os.Geteuid() != 0 && int(st.Uid) == os.Geteuid() {
			if err := unix.Chmod(selfPath(at), st.Mode&metaModes|0o700); err != nil {
				return -1, release, err
			}
			undo = append(undo, func() { unix.Chmod(selfPath(at), st.Mode&metaModes) })
		}
		fd = at
	}
	return fd, release, nil
}
