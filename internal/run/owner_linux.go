package run

import (
	"io/fs"
	"syscall"
)

// ownerOf gives the owner of a file.
func ownerOf(fi fs.FileInfo) (uid, gid int) {
	st := fi.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid)
}
