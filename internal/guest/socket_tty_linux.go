package guest

import "golang.org/x/sys/unix"

// isTerminalMaster reports whether st is the master side of a terminal.
func isTerminalMaster(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(uint64(st.Rdev)) == 5 && unix.Minor(uint64(st.Rdev)) == 2
}

// inQueue gives how many bytes wait in a pipe.
func inQueue(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCINQ) }
