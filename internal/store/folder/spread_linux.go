package folder

import "golang.org/x/sys/unix"

// spread tells ext4 and its like that the folders below dir have nothing to do
// with each other, as chattr +T does. It then gives each a part of the disk of
// its own. Otherwise all runs share one, and there every new file waits while
// the inodes of runs that were removed a moment ago are passed over one by one.
// Where this means nothing nothing happens.
func spread(dir int) {
	const topDir = 0x00020000 // FS_TOPDIR_FL of linux/fs.h
	flags, err := unix.IoctlGetUint32(dir, unix.FS_IOC_GETFLAGS)
	if err == nil && flags&topDir == 0 {
		unix.IoctlSetPointerInt(dir, unix.FS_IOC_SETFLAGS, int(flags|topDir)) // a courtesy
	}
}
