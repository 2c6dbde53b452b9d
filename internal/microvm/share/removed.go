package share

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// removed is a file or folder that is open and has no name any more: what a program has
// written into it is kept beside the state of the conversation.
type removed struct {
	Mode uint32 `json:"mode"` // with its kind
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Size int64  `json:"size,omitempty"`
	Hash string `json:"hash,omitempty"` // of a file's content, SHA-256
}

// maxRemoved bounds what all removed files of a machine hold together, in bytes.
const maxRemoved = 1 << 30

func removedName(keep string, id uint64) string {
	return filepath.Join(keep, "removed-"+strconv.FormatUint(id, 10))
}

// keepRemoved writes what such a file holds, at most room bytes.
func keepRemoved(keep string, h *handle, room int64) (r removed, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(h.fd, &st); err != nil {
		return r, err
	}
	r = removed{Mode: st.Mode, UID: st.Uid, GID: st.Gid}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return r, nil // an empty folder is made again
	}
	if st.Size > room {
		return r, fmt.Errorf("it holds %d bytes, and all such files together may hold %d", st.Size, maxRemoved)
	}
	// The descriptor may be for writing only, or be moved: one of our own is neither.
	fd, err := unix.Open(fdPath(h.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return r, err
	}
	from := os.NewFile(uintptr(fd), "removed")
	defer from.Close()
	to, err := os.OpenFile(removedName(keep, h.node.id), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return r, err
	}
	sum := sha256.New()
	r.Size, err = io.Copy(io.MultiWriter(to, sum), io.LimitReader(from, room))
	r.Hash = hex.EncodeToString(sum.Sum(nil))
	return r, errors.Join(err, to.Close())
}

// again makes it anew, for one machine alone and without a name.
func (r removed) again(keep string, id uint64) (fd int, err error) {
	if r.Mode&unix.S_IFMT == unix.S_IFDIR {
		return r.folder(keep)
	}
	from, err := os.Open(removedName(keep, id))
	if err != nil {
		return -1, err
	}
	defer from.Close()
	if fd, err = unix.Open(keep, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err != nil {
		return -1, &os.PathError{Op: "make a file without a name in", Path: keep, Err: err}
	}
	// Files of package os close their descriptors: this one writes to a copy of it.
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	to := os.NewFile(uintptr(own), "removed")
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(from, r.Size+1))
	if err == nil && (n != r.Size || hex.EncodeToString(sum.Sum(nil)) != r.Hash) {
		err = errors.New("its content is not what was kept")
	}
	if err = errors.Join(err, to.Close(), r.own(fd)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// folder gives an empty folder without a name.
func (r removed) folder(keep string) (fd int, err error) {
	dir, err := os.MkdirTemp(keep, "folder-")
	if err != nil {
		return -1, err
	}
	fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err = errors.Join(err, os.Remove(dir)); err == nil {
		err = r.own(fd)
	}
	if err != nil && fd >= 0 {
		unix.Close(fd)
		fd = -1
	}
	return fd, err
}

// own gives it to whom it belonged. Where the ids do not exist it stays the server's.
func (r removed) own(fd int) error {
	if err := unix.Fchown(fd, int(r.UID), int(r.GID)); err != nil && err != unix.EPERM && err != unix.EINVAL {
		return err
	}
	return unix.Fchmod(fd, r.Mode&0o7777)
}
