package workspace

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fsKind is what Bailey knows about a kind of file system.
type fsKind struct {
	name  string
	lower bool // may be the lower layer of an overlay
	upper bool // may hold an overlay's upper layer
	fake  bool // made of kernel state, not of files; it cannot be copied
}

// fsKinds by statfs magic (linux/magic.h and the file systems' own sources).
// Only kinds on which an overlay is known to be right are marked so; an
// unknown kind is copied, which is right everywhere. Network and FUSE file
// systems change behind an overlay's back; vfat and the like have no
// attributes to hold its marks; overlay on overlay stacks only so deep.
var fsKinds = map[int64]fsKind{
	0xef53:     {name: "ext4", lower: true, upper: true},
	0x58465342: {name: "xfs", lower: true, upper: true},
	0x9123683e: {name: "btrfs", lower: true, upper: true},
	0x01021994: {name: "tmpfs", lower: true, upper: true},
	0xf2f52010: {name: "f2fs", lower: true, upper: true},
	0xca451a4e: {name: "bcachefs", lower: true, upper: true},
	0x2fc12fc1: {name: "zfs", lower: true},
	0xe0f5e1e2: {name: "erofs", lower: true},
	0x73717368: {name: "squashfs", lower: true},
	0x794c7630: {name: "overlayfs"},
	0x6969:     {name: "NFS"},
	0x65735546: {name: "FUSE"},
	0x01021997: {name: "9p"},
	0x4d44:     {name: "vfat"},
	0x2011bab0: {name: "exfat"},
	0x5346544e: {name: "NTFS"},
	0x7366746e: {name: "NTFS"},
	0xff534d42: {name: "CIFS"},
	0xfe534d42: {name: "SMB"},
	0x00c36400: {name: "Ceph"},
	0x786f4256: {name: "vboxsf"},
	0xf15f:     {name: "eCryptfs"},
	0x9fa0:     {name: "proc", fake: true},
	0x62656572: {name: "sysfs", fake: true},
	0x0027e0eb: {name: "cgroup", fake: true},
	0x63677270: {name: "cgroup2", fake: true},
	0x1cd1:     {name: "devpts", fake: true},
	0x64626720: {name: "debugfs", fake: true},
	0x74726163: {name: "tracefs", fake: true},
	0x73636673: {name: "securityfs", fake: true},
	0xcafe4a11: {name: "bpf", fake: true},
	0x19800202: {name: "mqueue", fake: true},
	0x6e736673: {name: "nsfs", fake: true},
	0x42494e4d: {name: "binfmt_misc", fake: true},
}

func kindOf(path string) (fsKind, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fsKind{}, err
	}
	return kindOfMagic(int64(st.Type)), nil
}

func kindOfMagic(magic int64) fsKind {
	if k, ok := fsKinds[magic&0xffffffff]; ok {
		return k
	}
	return fsKind{name: fmt.Sprintf("of an unknown kind (magic %#x)", magic&0xffffffff)}
}

// fsCasefold is FS_CASEFOLD_FL of linux/fs.h: names differ by case only there.
const fsCasefold = 0x40000000

// unfitLower says why the folder cannot be the lower layer of an overlay.
func unfitLower(path string) string {
	k, err := kindOf(path)
	if err != nil {
		return "its file system cannot be asked: " + err.Error()
	}
	if !k.lower {
		return "its file system is " + k.name
	}
	if f, err := os.Open(path); err == nil {
		defer f.Close()
		var flags uint32
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.FS_IOC_GETFLAGS, uintptr(unsafe.Pointer(&flags)))
		if errno == 0 && flags&fsCasefold != 0 {
			return "its names ignore case"
		}
	}
	return ""
}

// unfitUpper says why the data folder cannot hold an overlay's upper layer.
func unfitUpper(data string, userXattr bool) string {
	at := existing(data)
	k, err := kindOf(at)
	if err != nil {
		return "the data folder's file system cannot be asked: " + err.Error()
	}
	if !k.upper {
		return "the data folder's file system is " + k.name
	}
	if userXattr {
		// A file system that has such attributes says that this one is not
		// there; one that has not says that there are none.
		_, err := unix.Getxattr(at, "user.overlay.bailey", nil)
		if errors.Is(err, unix.ENOTSUP) {
			return "the data folder's file system has no user attributes"
		}
	}
	return ""
}
