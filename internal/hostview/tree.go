package hostview

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxLinks is how many links a path may lead through, as in Linux's own
// lookup (MAXSYMLINKS in include/linux/namei.h).
const maxLinks = 40

var errTooManyLinks = errors.New("too many levels of symbolic links")

// tree reads the host's names below a prefix. Its paths are absolute and
// clean, without the prefix. It follows links by itself, so that an absolute
// link below a prefix stays below it.
type tree struct {
	root  string
	stats map[string]fs.FileInfo // nil for what does not exist or cannot be read
}

func newTree(root string) *tree {
	return &tree{root: strings.TrimSuffix(root, "/"), stats: make(map[string]fs.FileInfo, 256)}
}

// link is a symbolic link that a path led through.
type link struct{ at, text string }

// lstat describes p, whose parents must be free of links; nil if there is no
// such file or the caller may not know.
func (t *tree) lstat(p string) fs.FileInfo {
	fi, ok := t.stats[p]
	if !ok {
		fi, _ = os.Lstat(t.root + p)
		t.stats[p] = fi
	}
	return fi
}

// list gives the names in folder p, which must be free of links; none if it
// cannot be read.
func (t *tree) list(p string) []fs.DirEntry {
	entries, err := os.ReadDir(t.root + p)
	if err != nil {
		return nil
	}
	return entries
}

// resolve follows p to the end. It gives the real path, what is there, and the
// links it led through in the order they were met.
func (t *tree) resolve(p string) (real string, fi fs.FileInfo, links []link, err error) {
	cur := "/"
	fi = t.lstat("/")
	for name, todo := "", p; todo != ""; {
		name, todo, _ = strings.Cut(todo, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			if fi == nil || !fi.IsDir() {
				return "", nil, links, fs.ErrNotExist
			}
			cur = path.Dir(cur)
			fi = t.lstat(cur)
			continue
		}
		if fi == nil || !fi.IsDir() {
			return "", nil, links, fs.ErrNotExist
		}
		next := child(cur, name)
		if fi = t.lstat(next); fi == nil {
			return "", nil, links, fs.ErrNotExist
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			cur = next
			continue
		}
		if len(links) == maxLinks {
			return "", nil, links, errTooManyLinks
		}
		text, err := os.Readlink(t.root + next)
		if err != nil {
			return "", nil, links, err
		}
		links = append(links, link{next, text})
		todo = text + "/" + todo
		if strings.HasPrefix(text, "/") {
			cur = "/"
		}
		fi = t.lstat(cur)
	}
	if fi == nil {
		return "", nil, links, fs.ErrNotExist
	}
	return cur, fi, links, nil
}

// exists says whether p, followed to the end, is there.
func (t *tree) exists(p string) bool {
	_, _, _, err := t.resolve(p)
	return err == nil
}

// child gives the path of a single name, no dots, in the clean folder dir. It is
// path.Join for the many names that need no cleaning.
func child(dir, name string) string {
	if dir == "/" {
		return dir + name
	}
	return dir + "/" + name
}

// within says whether p is dir or below it. Both must be clean.
func within(p, dir string) bool {
	return p == dir || dir == "/" || (len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir)
}

// below gives p's path relative to dir, which must hold it.
func below(p, dir string) string {
	if dir == "/" {
		return strings.TrimPrefix(p, "/")
	}
	return strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
}

// starMatch says whether name fits pattern, in which a star stands for any
// letters. Neither holds a slash.
func starMatch(pattern, name string) bool {
	head, tail, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	name = name[len(head):]
	for {
		next, rest, star := strings.Cut(tail, "*")
		if !star {
			return strings.HasSuffix(name, tail)
		}
		i := strings.Index(name, next)
		if i < 0 {
			return false
		}
		name, tail = name[i+len(next):], rest
	}
}
