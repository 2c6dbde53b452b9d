//go:build linux

package cgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// write writes a control file in one call. The kernel takes cgroup files by
// one write each, and may interrupt one for a signal before anything is done.
func write(dir, name, value string) error {
	path := filepath.Join(dir, name)
	fd, err := open(path, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		_, err = unix.Write(fd, []byte(value))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "write " + strconv.Quote(value) + " to", Path: path, Err: err}
		}
		return nil
	}
}

func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return fd, nil
	}
}

// read reads a control file whole, without space around it.
func read(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return readFD(fd, path)
}

func readFD(fd int, path string) (string, error) {
	var out []byte
	buf := make([]byte, 4096)
	for {
		n, err := unix.Pread(fd, buf, int64(len(out)))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return "", &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return string(bytes.TrimSpace(out)), nil
		}
		out = append(out, buf[:n]...)
	}
}

// number reads a control file that holds one number; "max" and a file that is
// missing or odd give -1.
func number(dir, name string) int64 {
	if dir == "" {
		return -1
	}
	s, err := read(dir, name)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// field gives the number after key in a file of "key number" lines, or -1.
func field(text, key string) int64 {
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && k == key {
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

func exists(dir, name string) bool {
	return unix.Access(filepath.Join(dir, name), unix.F_OK) == nil
}

// writable says whether this process may write path, by its effective ids.
func writable(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil
}

// pids lists the processes in a group, itself only.
func pids(dir string) ([]int, error) {
	s, err := read(dir, "cgroup.procs")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, f := range strings.Fields(s) {
		if n, err := strconv.Atoi(f); err == nil && n > 0 {
			out = append(out, n)
		}
	}
	return out, nil
}
