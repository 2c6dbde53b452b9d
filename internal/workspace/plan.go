package workspace

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/mountinfo"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// DefaultCopyLimit is how many bytes a root in copy mode may take when
// Options.CopyLimit is zero: 8 GiB.
const DefaultCopyLimit = 8 << 30

// Options says how a plan is made.
type Options struct {
	// DataFolder is Bailey's data folder, which will hold the layers.
	DataFolder string
	// IUnderstand lifts the refusal of folders that are too much of the
	// machine.
	IUnderstand bool
	// ForceCopy asks for a full copy where an overlay would do.
	ForceCopy bool
	// CopyLimit bounds a full copy in bytes; 0 means DefaultCopyLimit.
	CopyLimit int64
	// UserXattr says that overlays will be mounted in a user namespace, with
	// the option userxattr. It is set by New for a user other than root.
	UserXattr bool
}

// Plan is how a sandbox sees a workspace.
type Plan struct {
	// Dir is the workspace: the resolved absolute path of the folder.
	Dir string
	// Roots are the folders to show copy-on-write at their own paths, the
	// workspace first. Put them into the run's record. No root lies in another.
	Roots []folder.Root

	opts  Options
	looks []look // of the roots, when Prepare made their layers
}

// New plans the view of the folder dir. Errors have code
// workspace_refused, or usage where dir is no folder.
func New(dir string, opts Options) (*Plan, error) {
	const what = "use the workspace"
	if opts.CopyLimit < 0 {
		return nil, bailey.Errorf(bailey.CodeUsage, what, "", "a copy limit of %d bytes is negative", opts.CopyLimit)
	}
	if opts.CopyLimit == 0 {
		opts.CopyLimit = DefaultCopyLimit
	}
	opts.UserXattr = opts.UserXattr || os.Geteuid() != 0
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeUsage, what, "", "%w", err)
	}
	if fi, err := os.Stat(abs); err != nil {
		return nil, bailey.Errorf(bailey.CodeUsage, what, "", "%w", err)
	} else if !fi.IsDir() {
		return nil, bailey.Errorf(bailey.CodeUsage, what, "", "%s is not a folder", abs)
	}
	data := resolveExisting(opts.DataFolder)
	if err := refuse(abs, data, opts.IUnderstand); err != nil {
		return nil, err
	}
	p := &Plan{Dir: abs, opts: opts}
	if err := p.plan(); err != nil {
		return nil, err
	}
	for i, r := range p.Roots {
		if i == 0 {
			continue
		}
		if err := refuse(r.Path, data, opts.IUnderstand); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// plan finds the roots of p.Dir. It refuses nothing because of what it is.
func (p *Plan) plan() error {
	const what = "use the workspace"
	abs, data := p.Dir, resolveExisting(p.opts.DataFolder)
	paths := []string{abs}
	reasons := []string{""}
	git, why, err := outsideGit(abs, p.opts.IUnderstand)
	if err != nil {
		return err
	}
	if git != "" {
		if within(abs, git) {
			return bailey.Errorf(bailey.CodeWorkspaceRefused, what, "work outside the git folder",
				"%s lies inside its own git folder %s", abs, git)
		}
		paths, reasons = append(paths, git), append(reasons, why)
	}
	mounts, err := mountinfo.Self()
	if err != nil {
		return bailey.Errorf(bailey.CodeWorkspaceRefused, what, "", "the mounts cannot be listed: %w", err)
	}
	for i, path := range paths {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return bailey.Errorf(bailey.CodeWorkspaceRefused, what, "", "%s: %w", path, err)
		}
		root := folder.Root{Path: path, Mode: folder.ModeOverlay, Why: reasons[i], Layer: "layers/" + strconv.Itoa(i), Dev: st.Dev, Ino: st.Ino}
		if reason := noOverlay(path, data, mounts, p.opts); reason != "" {
			root.Mode = folder.ModeCopy
			root.Why = strings.TrimPrefix(root.Why+"; a full copy, because "+reason, "; ")
		} else {
			root.UserXattr = p.opts.UserXattr
		}
		p.Roots = append(p.Roots, root)
	}
	return nil
}

// noOverlay says why an overlay over path with layers in data cannot be; ""
// when it can.
func noOverlay(path, data string, mounts []mountinfo.Mount, opts Options) string {
	if opts.ForceCopy {
		return "a copy was asked for"
	}
	for _, m := range mounts {
		if m.Point != path && within(m.Point, path) {
			return "something is mounted below it, at " + m.Point
		}
	}
	if reason := unfitLower(path); reason != "" {
		return reason
	}
	return unfitUpper(data, opts.UserXattr)
}

// within says whether path is dir or lies below it. Both are clean and
// absolute.
func within(path, dir string) bool {
	if path == dir || dir == "/" {
		return true
	}
	return strings.HasPrefix(path, dir+"/")
}

// resolveExisting resolves the links in path as far as it exists.
func resolveExisting(path string) string {
	path = filepath.Clean(path)
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolveExisting(parent), filepath.Base(path))
	}
	return path
}

// existing gives path or its nearest ancestor that exists.
func existing(path string) string {
	for {
		if _, err := os.Lstat(path); err == nil || path == "/" || path == "." {
			return path
		}
		path = filepath.Dir(path)
	}
}
