package client

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// packer writes a folder of this machine as an archive, for a sandbox.
type packer struct {
	root    string
	tar     *tar.Writer
	ignore  ignored  // left out, and said so
	skipped []string // with why
}

func (p *packer) pack() error {
	err := filepath.WalkDir(p.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(p.root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if p.ignore[rel] {
			p.skipped = append(p.skipped, rel+": .gitignore names it")
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return p.add(name, rel, d)
	})
	if err == nil {
		err = p.tar.Close()
	}
	var own *bailey.Error
	if err != nil && !errors.As(err, &own) {
		err = bailey.Errorf(bailey.CodeStorage, "copy the folder "+p.root, "", "%w", err)
	}
	return err
}

func (p *packer) add(name, rel string, d fs.DirEntry) error {
	fi, err := d.Info()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() && !fi.IsDir() && fi.Mode()&fs.ModeSymlink == 0 {
		p.skipped = append(p.skipped, rel+": it is neither file, folder nor link")
		return nil
	}
	link := ""
	if fi.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(name); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(fi, link)
	if err != nil {
		return err
	}
	h.Name = rel
	if fi.IsDir() {
		h.Name += "/"
	}
	// Ids of this machine mean nothing inside.
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	if err := p.tar.WriteHeader(h); err != nil || !fi.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // it was only read
	n, err := io.Copy(p.tar, io.LimitReader(f, h.Size))
	if err == nil && n < h.Size {
		err = bailey.Errorf(bailey.CodeConflict, "copy "+name, "copy it again", "it became shorter while it was read")
	}
	return err
}

// unpacker writes an archive that a sandbox gave below a folder of this machine.
// All of it is hostile: os.Root keeps names and links from leading out.
type unpacker struct {
	files, bytes int64
	skipped      []string // with why
}

func (u *unpacker) unpack(target string, r io.Reader) error {
	what := "write below " + target
	if err := os.MkdirAll(target, 0o755); err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	defer root.Close() // nothing was written through it
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			// The daemon says by its trailer whether this was all.
			_, err := io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return bailey.Errorf(bailey.CodeProtocol, what, "", "the archive makes no sense: %w", err)
		}
		if err := u.entry(root, h, t); err != nil {
			return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
		}
	}
}

func (u *unpacker) entry(root *os.Root, h *tar.Header, r io.Reader) error {
	name := path.Clean(strings.TrimPrefix(h.Name, "./"))
	if name == "." || name == "" {
		return nil
	}
	if !filepath.IsLocal(name) {
		u.skipped = append(u.skipped, name+": it leads out of the folder")
		return nil
	}
	if below, err := belowLink(root, name); err != nil {
		return err
	} else if below {
		u.skipped = append(u.skipped, name+": a folder above it is a link")
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	perm := fs.FileMode(h.Mode) & 0o755
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case tar.TypeReg:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm|0o600)
		if err != nil {
			return err
		}
		n, err := io.Copy(f, r)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
		u.bytes += n
	case tar.TypeSymlink:
		if leadsOut(name, h.Linkname) {
			u.skipped = append(u.skipped, name+": its link leads out of the folder")
			return nil
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := root.Symlink(h.Linkname, name); err != nil {
			return err
		}
	case tar.TypeLink:
		old := path.Clean(strings.TrimPrefix(h.Linkname, "./"))
		if !filepath.IsLocal(old) {
			u.skipped = append(u.skipped, name+": its link leads out of the folder")
			return nil
		}
		if fi, err := root.Lstat(old); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
			// From another folder it leads somewhere else.
			u.skipped = append(u.skipped, name+": it is a hard link to a link")
			return nil
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := root.Link(old, name); err != nil {
			return err
		}
	default:
		u.skipped = append(u.skipped, name+": it is neither file, folder nor link")
		return nil
	}
	u.files++
	return nil
}

// leadsOut says whether a link, whose folder is no link, may lead out of the root:
// where ".." comes behind a name, that name may be another link.
func leadsOut(name, to string) bool {
	if filepath.IsAbs(to) || !filepath.IsLocal(path.Join(path.Dir(name), to)) {
		return true
	}
	down := false
	for part := range strings.SplitSeq(to, "/") {
		if part == ".." && down {
			return true
		}
		down = down || part != ".." && part != "." && part != ""
	}
	return false
}

// belowLink says whether a folder above name is a link.
func belowLink(root *os.Root, name string) (bool, error) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		fi, err := root.Lstat(dir)
		if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
			return true, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}
