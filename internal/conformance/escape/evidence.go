//go:build linux

package escape

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// check is what Attempt.landed is.
type check = func(f *field, m *message) bool

// gotNonce: the run's secret has arrived.
func gotNonce(f *field, m *message) bool { return m != nil && strings.Contains(m.text, f.nonce) }

// gotText: something has arrived that holds the text that arrange has left.
func gotText(f *field, m *message) bool {
	want, _ := f.slots["want"].(string)
	return m != nil && want != "" && strings.HasPrefix(m.text, "loot ") && strings.Contains(m.text, want)
}

// wrote: the file that arrange has left in the slot "file" holds the run's
// nonce now.
func wrote(f *field, m *message) bool {
	if m != nil {
		return false
	}
	b, _ := os.ReadFile(f.slots["file"].(string))
	return bytes.Contains(b, []byte(f.nonce))
}

// gotFile: a descriptor of the file at path has arrived, open in the given way.
func gotFile(path string, access int) check {
	return func(f *field, m *message) bool {
		var want unix.Stat_t
		if unix.Stat(path, &want) != nil {
			return false
		}
		return carries(m, func(fd int) bool {
			var st unix.Stat_t
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			if err != nil || flags&unix.O_ACCMODE != access || flags&unix.O_PATH != 0 || unix.Fstat(fd, &st) != nil {
				return false
			}
			if want.Mode&unix.S_IFMT == unix.S_IFCHR || want.Mode&unix.S_IFMT == unix.S_IFBLK {
				return st.Mode&unix.S_IFMT == want.Mode&unix.S_IFMT && st.Rdev == want.Rdev
			}
			return sameKernelFile(fd, path)
		})
	}
}

// sameKernelFile says that fd is the file of /proc or /sys at path: the path of
// a descriptor is relative to the mount it came through, and the magic number of the file
// system cannot be had by a cover of another kind.
func sameKernelFile(fd int, path string) bool {
	var have, want unix.Statfs_t
	link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil || unix.Fstatfs(fd, &have) != nil || unix.Statfs(path, &want) != nil {
		return false
	}
	return have.Type == want.Type && strings.HasSuffix(path, "/"+filepath.Base(link))
}

// carries says whether one of a message's descriptors passes a test.
func carries(m *message, test func(fd int) bool) bool {
	if m == nil {
		return false
	}
	for _, f := range m.files {
		if test(int(f.Fd())) {
			return true
		}
	}
	return false
}

// gotAnonymous: a descriptor has arrived whose name has the given part, as
// objects of the kernel without a path have names.
func gotAnonymous(name string) check {
	return func(f *field, m *message) bool {
		return carries(m, func(fd int) bool {
			link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			return err == nil && strings.Contains(link, name)
		})
	}
}

// gotSocket: a socket of the family, type and protocol has arrived; -1 is any.
func gotSocket(family, kind, protocol int) check {
	return func(f *field, m *message) bool {
		return carries(m, func(fd int) bool {
			for opt, want := range map[int]int{unix.SO_DOMAIN: family, unix.SO_TYPE: kind, unix.SO_PROTOCOL: protocol} {
				if have, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, opt); err != nil || want >= 0 && have != want {
					return false
				}
			}
			return true
		})
	}
}

// status gives a field of /proc/PID/status of the sender.
func status(pid int, name string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// effective says whether the sender holds a capability.
func effective(pid int, capability uint) bool {
	set, err := strconv.ParseUint(status(pid, "CapEff"), 16, 64)
	return err == nil && set&(1<<capability) != 0
}

// namespace gives the namespace of a process.
func namespace(pid int, kind string) string {
	link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	return link
}

// leftNamespace: a process that reports itself is in another namespace than
// the sandbox's first process.
func leftNamespace(kind string) check {
	return func(f *field, m *message) bool {
		if m == nil || !strings.HasPrefix(m.text, "look") {
			return false
		}
		pid := m.pid
		if fd := firstFile(m); fd >= 0 { // a pidfd
			pid = pidOf(fd)
		}
		have, own := namespace(pid, kind), namespace(f.slots["pid1"].(int), kind)
		return have != "" && own != "" && have != own
	}
}

func firstFile(m *message) int {
	if len(m.files) == 0 {
		return -1
	}
	return int(m.files[0].Fd())
}

// pidOf gives the process of a pidfd, as this process numbers it.
func pidOf(fd int) int {
	b, _ := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Pid:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

// mounted: the sender's mount table has a mount that is none of ours at the
// path that arrange has left in the slot "at".
func mounted(f *field, m *message) bool {
	if m == nil || !strings.HasPrefix(m.text, "mounted") {
		return false
	}
	at := f.slots["at"].(string)
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", m.pid))
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == at {
			return true
		}
	}
	return false
}

// answered: the kernel looked at the call's arguments instead of refusing it.
func answered(errnos ...unix.Errno) check {
	return func(f *field, m *message) bool {
		if m == nil {
			return false
		}
		n, ok := strings.CutPrefix(m.text, "answer ")
		if !ok {
			return false
		}
		for _, e := range errnos {
			if n == strconv.Itoa(int(e)) {
				return true
			}
		}
		return false
	}
}

// lineOf gives the first line of a file for which want holds.
func lineOf(path string, want func(line string) bool) string {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		if want(line) {
			return line
		}
	}
	return ""
}

func itoa(n int) string { return strconv.Itoa(n) }
