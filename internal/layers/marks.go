package layers

import (
	"errors"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// marks is the beginning of the names under which overlayfs keeps its marks.
type marks string

// As root and as an ordinary user mount overlays.
const (
	trustedMarks marks = "trusted.overlay."
	userMarks    marks = "user.overlay."
)

// nested stands before the rest of a name that a program inside has given to an
// attribute which overlayfs would have taken for its own (Linux 6.7).
const nested = "overlay."

// xattr is one extended attribute.
type xattr struct{ name, value string }

// Bounds of what a layer may make this process hold.
const (
	maxXattrs     = 256
	maxXattrName  = 255
	maxXattrValue = 64 << 10
)

// attributes reads what is kept of an entry's extended attributes, by name, and
// whether overlayfs is told to hide what is below. A label or a signature is the
// host's word about a file and is not kept.
func (m marks) attributes(path string) (list []xattr, opaque bool, err error) {
	all, err := xattrNames(path)
	if err != nil || len(all) == 0 {
		return nil, false, err
	}
	for _, name := range all {
		kept := name
		if own, ok := strings.CutPrefix(name, string(m)); ok {
			rest, ok := strings.CutPrefix(own, nested)
			if !ok {
				if own == "opaque" {
					v, err := xattrValue(path, name)
					if err != nil {
						return nil, false, err
					}
					opaque = v == "y"
				}
				if own == "redirect" || own == "metacopy" {
					return nil, false, errors.New("it points to another file by overlayfs's mark " + own + ", which no layer of Bailey's does")
				}
				continue
			}
			kept = string(m) + rest
		} else if !keptXattr(name) {
			continue
		}
		v, err := xattrValue(path, name)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if list = append(list, xattr{kept, v}); len(list) > maxXattrs {
			return nil, false, errors.New("it has too many attributes")
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
	return list, opaque, nil
}

// stored gives the name under which an attribute lies on disk.
func (m marks) stored(name string) string {
	if rest, ok := strings.CutPrefix(name, string(m)); ok {
		return string(m) + nested + rest
	}
	return name
}

// keptXattr says whether an attribute is the sandbox's own word.
func keptXattr(name string) bool {
	if len(name) > maxXattrName || strings.IndexByte(name, 0) >= 0 || strings.IndexByte(name, '=') >= 0 {
		return false // a canonical form has no place for it
	}
	return strings.HasPrefix(name, "user.") && len(name) > len("user.") || name == "security.capability" ||
		name == "system.posix_acl_access" || name == "system.posix_acl_default"
}

func xattrNames(path string) ([]string, error) {
	buf := make([]byte, 256)
	for {
		n, err := unix.Llistxattr(path, buf)
		switch {
		case errors.Is(err, unix.ERANGE):
			if n, err = unix.Llistxattr(path, nil); err != nil {
				return nil, err
			}
			buf = make([]byte, n+256)
			continue
		case errors.Is(err, unix.ENOTSUP):
			return nil, nil
		case err != nil:
			return nil, err
		case n == 0:
			return nil, nil
		}
		return strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00"), nil
	}
}

func xattrValue(path, name string) (string, error) {
	buf := make([]byte, 256)
	for {
		n, err := unix.Lgetxattr(path, name, buf)
		if errors.Is(err, unix.ERANGE) && len(buf) < maxXattrValue {
			buf = make([]byte, maxXattrValue)
			continue
		}
		if err != nil {
			return "", err
		}
		return string(buf[:n]), nil
	}
}
