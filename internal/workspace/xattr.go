package workspace

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Xattr is one extended attribute.
type Xattr struct {
	Name  string
	Value []byte
}

// Xattrs reads the extended attributes of path without following a link in
// its last part; overlay's own marks are left out. A file system without
// attributes has none. The order is the kernel's.
func Xattrs(path string) ([]Xattr, error) {
	names, err := listXattrs(path)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	var list []Xattr
	for _, name := range names {
		if IsOverlayXattr(name) {
			continue
		}
		v, err := getXattr(path, name)
		if errors.Is(err, unix.ENODATA) {
			continue // gone between list and get
		}
		if err != nil {
			return nil, &os.PathError{Op: "getxattr " + name, Path: path, Err: err}
		}
		list = append(list, Xattr{name, v})
	}
	return list, nil
}

// IsOverlayXattr says whether overlayfs keeps a mark of its own under name.
func IsOverlayXattr(name string) bool {
	return strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.")
}

func listXattrs(path string) ([]string, error) {
	for size := 256; ; {
		buf := make([]byte, size)
		n, err := unix.Llistxattr(path, buf)
		switch {
		case errors.Is(err, unix.ERANGE):
			if n, err = unix.Llistxattr(path, nil); err != nil {
				return nil, &os.PathError{Op: "listxattr", Path: path, Err: err}
			}
			size = n + 256
			continue
		case errors.Is(err, unix.ENOTSUP):
			return nil, nil
		case err != nil:
			return nil, &os.PathError{Op: "listxattr", Path: path, Err: err}
		case n == 0:
			return nil, nil
		}
		return strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00"), nil
	}
}

func getXattr(path, name string) ([]byte, error) {
	for size := 256; ; {
		buf := make([]byte, size)
		n, err := unix.Lgetxattr(path, name, buf)
		if errors.Is(err, unix.ERANGE) {
			if n, err = unix.Lgetxattr(path, name, nil); err != nil {
				return nil, err
			}
			size = n + 256
			continue
		}
		if err != nil {
			return nil, err
		}
		return buf[:n], nil
	}
}

// setXattrs gives path the attributes. An ordinary user cannot set trusted.*
// and security.*; their absence is nothing that user could have seen.
func setXattrs(path string, list []Xattr) error {
	for _, x := range list {
		err := unix.Lsetxattr(path, x.Name, x.Value, 0)
		if err == nil {
			continue
		}
		if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 &&
			(strings.HasPrefix(x.Name, "security.") || strings.HasPrefix(x.Name, "trusted.")) {
			continue
		}
		return &os.PathError{Op: "setxattr " + x.Name, Path: path, Err: err}
	}
	return nil
}
