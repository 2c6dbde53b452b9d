//go:build linux

package landlock

import "golang.org/x/sys/unix"

// Access is a set of rights to files (linux/landlock.h, LANDLOCK_ACCESS_FS_*).
type Access uint64

// The rights.
const (
	Execute    Access = unix.LANDLOCK_ACCESS_FS_EXECUTE
	WriteFile  Access = unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	ReadFile   Access = unix.LANDLOCK_ACCESS_FS_READ_FILE
	ReadDir    Access = unix.LANDLOCK_ACCESS_FS_READ_DIR
	RemoveDir  Access = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR
	RemoveFile Access = unix.LANDLOCK_ACCESS_FS_REMOVE_FILE
	MakeChar   Access = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR
	MakeDir    Access = unix.LANDLOCK_ACCESS_FS_MAKE_DIR
	MakeReg    Access = unix.LANDLOCK_ACCESS_FS_MAKE_REG
	MakeSock   Access = unix.LANDLOCK_ACCESS_FS_MAKE_SOCK
	MakeFIFO   Access = unix.LANDLOCK_ACCESS_FS_MAKE_FIFO
	MakeBlock  Access = unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	MakeSym    Access = unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	Refer      Access = unix.LANDLOCK_ACCESS_FS_REFER     // ABI 2: move and link between folders
	Truncate   Access = unix.LANDLOCK_ACCESS_FS_TRUNCATE  // ABI 3
	IoctlDev   Access = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV // ABI 5: ioctl on devices opened from now on
)

// Sets of rights for rules.
const (
	// Read is reading, listing and executing.
	Read = Execute | ReadFile | ReadDir
	// Write is everything that a program does in a folder of its own; no
	// device nodes and no ioctl on devices.
	Write = Read | WriteFile | RemoveDir | RemoveFile | MakeDir | MakeReg | MakeSock | MakeFIFO | MakeSym | Refer | Truncate
	// Devices is for /dev: its nodes are used, its folders (such as shm) written to.
	Devices = Write | IoctlDev

	// fileOnly are the rights that a rule on something else than a folder may
	// have; the kernel refuses others there.
	fileOnly = Execute | WriteFile | ReadFile | Truncate | IoctlDev
)

// handledBy gives all rights to files that an ABI knows, as far as this
// package does.
func handledBy(abi int) Access {
	all := Write | MakeChar | MakeBlock | IoctlDev
	if abi < 5 {
		all &^= IoctlDev
	}
	if abi < 3 {
		all &^= Truncate
	}
	if abi < 2 {
		all &^= Refer
	}
	if abi < 1 {
		all = 0
	}
	return all
}
