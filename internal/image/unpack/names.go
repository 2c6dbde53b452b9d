package unpack

import (
	"encoding/hex"
	"hash"
	"path"
	"strings"
)

// The names that mean deletion in a layer (image-spec, layer.md).
const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
	aufsPrefix     = ".wh..wh." // what else begins so is aufs's own bookkeeping
)

func hexOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// cleanName gives the name of an entry as a clean path relative to the root,
// "." for the root itself. A leading slash is dropped: it can only mean the
// root of the layer. Anything that climbs is refused, even if it would come
// down again inside.
func cleanName(name string, l Limits) (string, error) {
	if len(name) > l.Path {
		return "", tooMuch("path", l.Path, "a name is %d bytes long", len(name))
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", invalid("a name contains a NUL byte: %q", name)
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return "", invalid("the name %q climbs out of its folder", name)
		case len(part) > maxComponent:
			return "", invalid("a component of the name %.60q… is longer than %d bytes", name, maxComponent)
		}
		depth++
	}
	if depth > l.Depth {
		return "", tooMuch("depth", l.Depth, "the name %.60q… has %d components", name, depth)
	}
	return path.Clean("./" + name), nil
}

// deletion says what the last component of a clean name deletes: a sibling by
// name, everything older in its folder (opaque), or nothing. ignored is an
// aufs leftover.
func deletion(base string) (target string, opaque, ignored bool, err error) {
	switch {
	case base == opaqueName:
		return "", true, false, nil
	case strings.HasPrefix(base, aufsPrefix):
		return "", false, true, nil
	case strings.HasPrefix(base, whiteoutPrefix):
		target = base[len(whiteoutPrefix):]
		if target == "" || target == "." || target == ".." {
			return "", false, false, invalid("%q deletes no name that can exist", base)
		}
		return target, false, false, nil
	}
	return "", false, false, nil
}

// hasWhiteoutPart says whether a component of a clean path is a whiteout name,
// which can neither be a folder nor be linked to.
func hasWhiteoutPart(p string) bool {
	return strings.HasPrefix(p, whiteoutPrefix) || strings.Contains(p, "/"+whiteoutPrefix)
}
