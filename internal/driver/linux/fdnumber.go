package linux

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// Some system calls want a path for what the script has as a descriptor. The
// path has to be written down before the script starts, so the descriptor is
// given a number that is known in advance: above all that the child has from
// this process and opens by itself.
const (
	usualNumbers = 600 // with room for what a script opens, below the common limit of 1024
	usualTable   = 256 // what a process with few descriptors has room for
	scriptOpens  = 512 // more than a script opens
	fixedNumbers = 64  // more than a script fixes
)

// firstNumber gives the number to begin with. A process that holds many
// sandboxes has many descriptors, and its children begin with copies of all.
func firstNumber() int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return usualNumbers
	}
	table := tableSize(b)
	if table <= usualTable {
		return usualNumbers
	}
	first := table + scriptOpens
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur < uint64(first+fixedNumbers) {
		first = max(int(limit.Cur)-fixedNumbers, usualNumbers)
	}
	return first
}

// tableSize reads from /proc/self/status for how many descriptors a process
// has room: no number is above that.
func tableSize(status []byte) int {
	for line := range bytes.Lines(status) {
		if v, ok := bytes.CutPrefix(line, []byte("FDSize:")); ok {
			n, _ := strconv.Atoi(string(bytes.TrimSpace(v)))
			return n
		}
	}
	return 0
}

// fixed gives fd a number that is known in advance and returns the path by
// which system calls that want a path find it. A number that is taken ends the
// script: what has it would be exchanged for something else.
func (b *builder) fixed(fd spawn.Slot) string {
	return "/proc/self/fd/" + strconv.Itoa(b.number(fd))
}

// number does the same for what wants the number itself.
func (b *builder) number(fd spawn.Slot) int {
	n := b.next
	b.next++
	b.Do("look for a free descriptor", unix.SYS_FCNTL, spawn.Int(n), spawn.Int(unix.F_GETFD), zero).Ignore(unix.EBADF).ElseSkip(1)
	b.Do("take descriptor "+strconv.Itoa(n)+", which is in use", unix.SYS_CLOSE, spawn.Int(-1))
	b.Do("fix descriptor", unix.SYS_DUP3, spawn.From(fd), spawn.Int(n), spawn.Int(unix.O_CLOEXEC))
	return n
}
