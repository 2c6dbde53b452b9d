//go:build linux && (amd64 || arm64)

package guest

import (
	"errors"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// All paths are resolved below the server's root by the kernel, symbolic links
// included, and never through the links of /proc that lead to open files:
// those would be this process's own. Where the kernel lacks openat2 (gVisor),
// walk does the same step by step.

const maxLinks = 40 // symbolic links in one resolution, as the kernel has it

// open opens path below the root. It never blocks on a FIFO.
func (s *Server) open(p string, flags int, mode uint32) (int, error) {
	flags |= unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	if flags&unix.O_PATH != 0 {
		flags &= unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY | unix.O_NOFOLLOW
	}
	rel := strings.TrimLeft(p, "/")
	if rel == "" {
		rel = "."
	}
	how := unix.OpenHow{Flags: uint64(flags), Mode: uint64(mode), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(s.root, rel, &how)
		switch err {
		case unix.EINTR, unix.EAGAIN: // EAGAIN: a rename raced with ".."
			continue
		case unix.ENOSYS, unix.EPERM:
			// A filter that does not know openat2 may answer EPERM; so does a file
			// that is immutable, for which walk gives the same answer.
			return s.walk(rel, flags, mode)
		}
		return fd, err
	}
}

// walk is open without openat2. Each component is opened without following it;
// symbolic links are read and put in front of what is left.
func (s *Server) walk(rel string, flags int, mode uint32) (int, error) {
	dirs := []int{}
	defer func() { closeAll(dirs) }()
	at := func() int {
		if len(dirs) == 0 {
			return s.root
		}
		return dirs[len(dirs)-1]
	}
	rest, links := rel, 0
	for {
		rest = strings.TrimLeft(rest, "/")
		name, more, slash := strings.Cut(rest, "/")
		last := strings.Trim(more, "/") == ""
		switch name {
		case "", ".":
			if last {
				return unix.Openat(at(), ".", flags, mode)
			}
			rest = more
			continue
		case "..":
			if len(dirs) > 0 {
				unix.Close(dirs[len(dirs)-1])
				dirs = dirs[:len(dirs)-1]
			}
			if last {
				return unix.Openat(at(), ".", flags, mode)
			}
			rest = more
			continue
		}
		fd, err := unix.Openat(at(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			if err == unix.ENOENT && last && flags&unix.O_CREAT != 0 {
				return unix.Openat(at(), name, flags|unix.O_NOFOLLOW, mode)
			}
			return -1, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return -1, err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK && !(last && !slash && flags&unix.O_NOFOLLOW != 0) {
			target, err := readlinkat(fd, "")
			fs := unix.Statfs_t{}
			ferr := unix.Fstatfs(fd, &fs)
			unix.Close(fd)
			if err != nil {
				return -1, err
			}
			if links++; links > maxLinks || ferr != nil {
				return -1, unix.ELOOP
			}
			if fs.Type == unix.PROC_SUPER_MAGIC && name != "self" && name != "thread-self" && name != "mounts" && name != "net" {
				return -1, unix.ELOOP // a link to an open file, folder or program
			}
			if strings.HasPrefix(target, "/") {
				closeAll(dirs)
				dirs = dirs[:0]
			}
			rest = target + "/" + more
			if last && !slash {
				rest = target
			}
			continue
		}
		if last {
			unix.Close(fd)
			if slash {
				flags |= unix.O_DIRECTORY
			}
			return unix.Openat(at(), name, flags|unix.O_NOFOLLOW, mode)
		}
		dirs = append(dirs, fd)
		rest = more
	}
}

func readlinkat(dir int, name string) (string, error) {
	b := make([]byte, MaxPath)
	n, err := unix.Readlinkat(dir, name, b)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

// parent opens the folder that holds path's last element and gives that
// element, which is neither "." nor "..".
func (s *Server) parent(p string) (dir int, name string, err error) {
	p = strings.TrimRight(p, "/")
	d, name := path.Split(p)
	if name == "" || name == "." || name == ".." {
		return -1, "", &failure{kind: failErrno, errno: uint16(syscall.EINVAL), step: "path", text: "it has no last element to act on"}
	}
	if len(name) > 255 {
		return -1, "", stepErr("path", syscall.ENAMETOOLONG)
	}
	dir, err = s.open(d, unix.O_PATH|unix.O_DIRECTORY, 0)
	return dir, name, stepErr("open folder", err)
}

// target follows the symbolic links that path's last element may be, so that
// a write replaces the file that a link names and not the link.
func (s *Server) target(p string) (dir int, name string, err error) {
	for range maxLinks {
		dir, name, err = s.parent(p)
		if err != nil {
			return -1, "", err
		}
		link, err := readlinkat(dir, name)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return dir, name, nil
		}
		unix.Close(dir)
		if err != nil {
			return -1, "", stepErr("readlink", err)
		}
		if !strings.HasPrefix(link, "/") {
			d, _ := path.Split(strings.TrimRight(p, "/"))
			link = d + link
		}
		p = link
	}
	return -1, "", stepErr("readlink", syscall.ELOOP)
}

// mkdirAll makes the folders of path that are missing.
func (s *Server) mkdirAll(p string, mode uint32) error {
	p = strings.TrimRight(p, "/")
	if p == "" {
		return nil
	}
	if fd, err := s.open(p, unix.O_PATH|unix.O_DIRECTORY, 0); err == nil {
		unix.Close(fd)
		return nil
	} else if err != unix.ENOENT {
		return stepErr("open folder", err)
	}
	d, _ := path.Split(p)
	if err := s.mkdirAll(d, 0o755); err != nil {
		return err
	}
	dir, name, err := s.parent(p)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := makeDir(dir, name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
		return stepErr("mkdir", err)
	}
	return nil
}

// makeDir makes a folder with exactly this mode, whatever the umask.
func makeDir(dir int, name string, mode uint32) error {
	if err := unix.Mkdirat(dir, name, mode&0o777); err != nil {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // it may forbid reading; the mode of mkdir then stands
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, mode)
}
