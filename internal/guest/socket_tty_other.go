//go:build unix && !linux

package guest

import "golang.org/x/sys/unix"

// No sandbox on these systems passes a terminal's master.
func isTerminalMaster(*unix.Stat_t) bool { return false }

// fionread is _IOR('f', 127, int), which package unix leaves out.
const fionread = 0x4004667f

func inQueue(fd int) (int, error) { return unix.IoctlGetInt(fd, fionread) }
