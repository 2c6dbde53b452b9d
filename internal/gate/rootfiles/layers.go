package rootfiles

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// layers looks into a root file system that is not mounted, as overlayfs would
// show it: what lies highest counts, whiteouts (character devices 0:0) hide
// what lies below, and so do folders that are marked opaque. Links are followed
// inside. Its content is the image maker's: nothing of it is trusted.
type layers struct{ root Root }

// Bounds of what is followed and read.
const (
	maxLinks = 40
	maxSteps = 200     // names of one path, with those that links add
	maxNames = 1 << 12 // looked at of one folder, for a pattern
	maxTrust = 4 << 20 // bytes of one file of certificates
)

// stack are the folders of the host, highest first, that one folder inside is
// made of.
type stack []string

func (l layers) top(p string) (s stack) {
	for _, b := range slices.Backward(l.root.Binds) {
		if b.Target == p {
			return stack{b.Source}
		}
	}
	if p == "/" {
		s = slices.Clone(l.root.Layers)
		slices.Reverse(s)
	}
	return s
}

// enter finds name in a folder: a folder as a stack, or else the path of the
// one file.
func (s stack) enter(name string) (folder stack, file string, info fs.FileInfo) {
	for _, dir := range s {
		p := filepath.Join(dir, name)
		fi, err := os.Lstat(p)
		switch {
		case err != nil:
			continue
		case fi.IsDir():
			folder = append(folder, p)
			if info == nil {
				info = fi
			}
			if opaque(p) {
				return folder, "", info
			}
			continue
		case len(folder) > 0 || fi.Mode()&fs.ModeCharDevice != 0: // covered, or a whiteout
			return folder, "", info
		}
		return nil, p, fi
	}
	return folder, "", info
}

func opaque(dir string) bool {
	var value [1]byte
	for _, name := range []string{"trusted.overlay.opaque", "user.overlay.opaque"} {
		if n, err := unix.Lgetxattr(dir, name, value[:]); err == nil && n == 1 && value[0] == 'y' {
			return true
		}
	}
	return false
}

// find gives the file of the host, or the stack of folders, that is p inside.
func (l layers) find(p string) (folder stack, file string, err error) {
	folder, file, _, err = l.walk(p)
	return folder, file, err
}

// walk does that and gives the path without links.
func (l layers) walk(p string) (folder stack, file, at string, err error) {
	absent := &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	todo := strings.Split(path.Clean(p), "/")
	at = "/"
	folder = l.top("/")
	for links, steps := 0, 0; len(todo) > 0; steps++ {
		if steps >= maxSteps { // with ".." a few links make millions
			return nil, "", "", &fs.PathError{Op: "open", Path: p, Err: unix.ELOOP}
		}
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			todo = append(strings.Split(path.Dir(at), "/"), todo...)
			folder, at = l.top("/"), "/"
			continue
		}
		next := path.Join(at, name)
		bound := l.top(next)
		inside, file, info := folder.enter(name)
		switch {
		case bound != nil:
			folder, at = bound, next
		case info == nil:
			return nil, "", "", absent
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return nil, "", "", &fs.PathError{Op: "open", Path: p, Err: unix.ELOOP}
			}
			to, err := os.Readlink(file)
			if err != nil {
				return nil, "", "", err
			}
			if path.IsAbs(to) {
				folder, at = l.top("/"), "/"
			}
			todo = append(strings.Split(to, "/"), todo...)
		case info.IsDir():
			folder, at = inside, next
		case len(todo) > 0:
			return nil, "", "", absent
		default:
			return nil, file, next, nil
		}
	}
	return folder, "", at, nil
}

// real gives the path without links under which p is, or would be made, inside.
func (l layers) real(p string) string {
	at, rest := path.Clean(p), ""
	for {
		if _, _, where, err := l.walk(at); err == nil {
			return path.Join(where, rest)
		}
		at, rest = path.Dir(at), path.Join(path.Base(at), rest)
	}
}

// has says whether there is a file inside.
func (l layers) has(p string) bool {
	_, file, err := l.find(p)
	if err != nil || file == "" {
		return false
	}
	fi, err := os.Lstat(file)
	return err == nil && fi.Mode().IsRegular() && fi.Size() <= maxTrust
}

// read gives the content of a file inside.
func (l layers) read(p string) ([]byte, error) {
	_, file, err := l.find(p)
	if err != nil {
		return nil, err
	}
	if file == "" {
		return nil, &fs.PathError{Op: "read", Path: p, Err: unix.EISDIR}
	}
	return readFile(file, unix.O_NOFOLLOW)
}

// readFile reads a file of the host. A name that was a file may be a pipe by now:
// it must not hold us up.
func readFile(file string, flags int) ([]byte, error) {
	fd, err := unix.Open(file, flags|unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: file, Err: err}
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxTrust {
		return nil, &fs.PathError{Op: "read", Path: file, Err: errors.New("it is no file of certificates")}
	}
	return io.ReadAll(io.LimitReader(f, maxTrust))
}

// glob lists files inside by a pattern of path.Match.
func (l layers) glob(pattern string) (found []string) {
	found = []string{"/"}
	for _, part := range strings.Split(strings.TrimPrefix(pattern, "/"), "/") {
		var next []string
		for _, dir := range found {
			if !strings.ContainsAny(part, `*?[\`) {
				next = append(next, path.Join(dir, part))
				continue
			}
			folder, _, err := l.find(dir)
			if err != nil {
				continue
			}
			var names []string
			for _, d := range folder {
				for _, n := range someNames(d) {
					if ok, _ := path.Match(part, n); ok {
						names = append(names, n)
					}
				}
			}
			slices.Sort(names)
			names = slices.Compact(names)
			for _, n := range names[:min(len(names), maxStores)] {
				next = append(next, path.Join(dir, n))
			}
		}
		found = next
	}
	return slices.DeleteFunc(found, func(p string) bool {
		folder, file, err := l.find(p)
		return err != nil || file == "" && folder == nil
	})
}

// someNames lists a folder, of which whoever made the image may have made a huge one.
func someNames(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxNames) // those that came count
	return names
}
