package unpack

import (
	"archive/tar"
	"encoding/binary"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

// Bounds of what Linux accepts: XATTR_NAME_MAX, and less than XATTR_SIZE_MAX
// (64 KiB), because ext4 keeps the attributes of a file in one block.
const (
	maxXattrName  = 255
	maxXattrValue = 64 << 10
	maxXattrs     = 64
	paxXattr      = "SCHILY.xattr." // how tar, star and image builders write them
)

// xattrs gives the extended attributes an entry keeps: user.* and, where the
// store keeps ids, security.capability. Everything else is a statement about
// the host (labels, ACLs, overlayfs's own marks, which could redirect a name
// to another) and is left out.
func (u *unpacker) xattrs(real string, h *tar.Header) (map[string]string, error) {
	var keep map[string]string
	for _, key := range sorted(h.PAXRecords) {
		value := h.PAXRecords[key]
		name, ok := strings.CutPrefix(key, paxXattr)
		if !ok {
			continue
		}
		if len(name) > maxXattrName || len(value) > maxXattrValue || strings.IndexByte(name, 0) >= 0 || name == "" {
			return nil, invalid("%.200q has an extended attribute that is longer than Linux allows", real)
		}
		if !u.allowed(name, value) {
			u.note("left out the attribute %.100q of %.200q", name, real)
			continue
		}
		if keep == nil {
			keep = map[string]string{}
		}
		if keep[name] = value; len(keep) > maxXattrs {
			return nil, invalid("%.200q has more than %d extended attributes", real, maxXattrs)
		}
	}
	if h.Typeflag == tar.TypeSymlink {
		return nil, nil // no attribute of the list can be on a link
	}
	return keep, nil
}

func (u *unpacker) allowed(name, value string) bool {
	if name == "security.capability" {
		return u.opt.IDs == rootfs.IDsHost && validCapability(value)
	}
	return strings.HasPrefix(name, "user.") && len(name) > len("user.") &&
		!strings.HasPrefix(name, "user.overlay.")
}

// validCapability accepts version 2 of the attribute (struct vfs_cap_data in
// linux/capability.h): its magic and length. Version 3 names a user namespace
// of the host and is left out.
func validCapability(v string) bool {
	const revision2, revisionMask = 0x02000000, 0xFF000000
	return len(v) == 20 && binary.LittleEndian.Uint32([]byte(v))&revisionMask == revision2
}
