package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/view"
)

// source gives what COPY --from and bind mounts read: the context with "", a stage
// by name or number, or an image.
func (s *stage) source(ctx context.Context, from string) (*view.View, error) {
	if from == "" {
		return s.b.context, nil
	}
	from, err := s.b.file.expander(s.b.global)(from)
	if err != nil {
		return nil, err
	}
	stages := s.b.file.stages
	n, ok := instructions.HasStage(stages, from)
	if !ok {
		if i, err := strconv.Atoi(from); err == nil && i >= 0 && i < len(stages) {
			n, ok = i, true
		}
	}
	if ok {
		if n >= s.n {
			return nil, fmt.Errorf("the stage %q comes only later", from)
		}
		other, err := s.b.stage(ctx, n)
		if err != nil {
			return nil, err
		}
		return other.view(), nil
	}
	other, err := s.b.base(ctx, from)
	if err != nil {
		return nil, err
	}
	return other.view(), nil
}

// copier puts files of one place into a tree.
type copier struct {
	tree    *tree
	from    *view.View
	owner   User
	keep    bool // owners as they are
	mode    *fs.FileMode
	exclude *ignore
	base    string // what excluded names are relative to
}

// take takes over a file, or a folder with all in it, at a path.
func (c *copier) take(e view.Entry, at string) error {
	if c.exclude != nil && e.Path != c.base && c.exclude.hides(strings.TrimPrefix(strings.TrimPrefix(e.Path, c.base), "/")) {
		return nil
	}
	n := node{entry: e, from: c.from, mode: e.Mode, owner: c.owner, xattrs: c.keep}
	if c.keep {
		n.owner = User{e.UID, e.GID}
	}
	if c.mode != nil && e.Mode&fs.ModeSymlink == 0 {
		n.mode = *c.mode
	}
	if !e.Mode.IsDir() {
		if old, err := c.tree.ground.Lstat(at); err == nil && old.Mode.IsDir() {
			return fmt.Errorf("%s is a folder, and a file cannot take its place", at)
		}
		return c.tree.put(at, n)
	}
	// A link to a folder stays one: /bin of an image leads to /usr/bin.
	if old, err := c.tree.ground.Stat(at); err == nil && old.Mode.IsDir() && old.Path != at {
		if at, err = c.tree.folder(at, c.owner); err != nil {
			return err
		}
	} else if err := c.tree.put(at, n); err != nil {
		return err
	}
	return c.below(e, at)
}

// below takes over what is in a folder.
func (c *copier) below(dir view.Entry, at string) error {
	list, err := c.from.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := c.take(e, path.Join(at, path.Base(e.Path))); err != nil {
			return err
		}
	}
	return nil
}

// copyWords is what COPY and ADD have in common.
type copyWords struct {
	instructions.SourcesAndDest
	chown, chmod string
	exclude      []string
}

func (s *stage) copy(ctx context.Context, c *instructions.CopyCommand) error {
	if c.Parents {
		return bailey.Errorf(bailey.CodeNotAvailable, "copy with --parents", "name the folders as targets", "Bailey does not know this flag")
	}
	from, err := s.source(ctx, c.From)
	if err != nil {
		return err
	}
	t, owner, mode, dest, err := s.prepare(copyWords{c.SourcesAndDest, c.Chown, c.Chmod, c.ExcludePatterns})
	if err != nil {
		return err
	}
	cp := &copier{tree: t, from: from, owner: owner, mode: mode}
	if cp.exclude, err = parseIgnore([]byte(strings.Join(c.ExcludePatterns, "\n"))); err != nil {
		return err
	}
	found, err := s.sources(from, c.SourcePaths)
	if err != nil {
		return err
	}
	if err := s.place(cp, found, dest, len(found)+len(c.SourceContents) > 1); err != nil {
		return err
	}
	if err := t.texts(c.SourceContents, dest, owner, mode); err != nil {
		return err
	}
	return s.plant(ctx, t, c)
}

// prepare reads the flags, and where things go.
func (s *stage) prepare(w copyWords) (t *tree, owner User, mode *fs.FileMode, dest string, err error) {
	t = newTree(s.view())
	if w.chown != "" {
		a, err := resolveUser(t.ground, w.chown)
		if err != nil {
			return nil, owner, nil, "", err
		}
		if owner = a.User; !strings.Contains(w.chown, ":") {
			if n, ok := id(w.chown); ok {
				owner.GID = n // as Docker has it: the group of a bare number is the same number
			}
		}
	}
	if w.chmod != "" {
		bits, err := strconv.ParseUint(w.chmod, 8, 32)
		if err != nil || bits > 0o7777 {
			return nil, owner, nil, "", fmt.Errorf("--chmod takes octal digits such as 755, not %q", w.chmod)
		}
		m := modeOf(bits)
		mode = &m
	}
	if w.DestPath == "" {
		return nil, owner, nil, "", errors.New("it is not said where to")
	}
	dest = s.inside(w.DestPath)
	if strings.HasSuffix(w.DestPath, "/") || path.Base(w.DestPath) == "." {
		dest += "/"
	}
	return t, owner, mode, dest, nil
}

// found is one source.
type found struct {
	entry view.Entry
	named string // as it was written, for the name it gets
}

// sources finds what names and patterns mean. One that means nothing is an error.
func (s *stage) sources(from *view.View, names []string) (all []found, err error) {
	for _, n := range names {
		list, err := match(from, path.Clean("/"+n))
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("there is no %q to copy", n)
		}
		all = append(all, list...)
	}
	return all, nil
}

// match finds a pattern: * ? and [] stay in one component. Links are followed in
// the folders on the way, and at the end too.
func match(v *view.View, pattern string) (all []found, err error) {
	at := []string{"/"}
	for part := range strings.SplitSeq(strings.Trim(pattern, "/"), "/") {
		if part == "" {
			break
		}
		var next []string
		for _, dir := range at {
			if !strings.ContainsAny(part, `*?[\`) {
				next = append(next, path.Join(dir, part))
				continue
			}
			d, err := v.Stat(dir)
			if err != nil {
				continue
			}
			list, err := v.ReadDir(d)
			if err != nil {
				return nil, err
			}
			for _, e := range list {
				ok, err := path.Match(part, path.Base(e.Path))
				if err != nil {
					return nil, fmt.Errorf("%q is no pattern: %w", pattern, err)
				}
				if ok {
					next = append(next, path.Join(dir, path.Base(e.Path)))
				}
			}
		}
		at = next
	}
	for _, p := range at {
		e, err := v.Stat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found{e, p})
	}
	return all, nil
}

// place puts what was found at dest, which ends with a slash if a folder is meant.
func (s *stage) place(c *copier, all []found, dest string, several bool) error {
	intoDir := strings.HasSuffix(dest, "/")
	if several && !intoDir {
		return fmt.Errorf("there are several sources: %s has to end with a slash", dest)
	}
	if e, err := c.tree.ground.Stat(dest); err == nil && e.Mode.IsDir() {
		intoDir = true
	}
	for _, f := range all {
		c.base = f.entry.Path
		if f.entry.Mode.IsDir() {
			at, err := c.tree.folder(dest, c.owner)
			if err != nil {
				return err
			}
			if err := c.below(f.entry, at); err != nil {
				return err
			}
			continue
		}
		dir, name := path.Split(path.Clean(dest))
		if intoDir {
			dir, name = dest, path.Base(f.named)
		}
		c.base = path.Dir(f.entry.Path)
		at, err := c.tree.folder(dir, c.owner)
		if err != nil {
			return err
		}
		if err := c.take(f.entry, path.Join(at, name)); err != nil {
			return err
		}
	}
	return nil
}

// texts puts heredocs at dest.
func (t *tree) texts(list []instructions.SourceContent, dest string, owner User, mode *fs.FileMode) error {
	for _, x := range list {
		dir, name := path.Split(path.Clean(dest))
		if e, err := t.ground.Stat(dest); strings.HasSuffix(dest, "/") || err == nil && e.Mode.IsDir() {
			dir, name = dest, path.Base(x.Path)
		}
		at, err := t.folder(dir, owner)
		if err != nil {
			return err
		}
		n := node{content: []byte(x.Data), mode: 0o644, owner: owner}
		n.entry = view.Entry{Path: path.Join(at, name), Mode: 0o644, Size: int64(len(x.Data)), ModTime: time.Unix(0, 0)}
		if mode != nil {
			n.mode = *mode
		}
		if err := t.put(n.entry.Path, n); err != nil {
			return err
		}
	}
	return nil
}
