//go:build linux

package escape

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Others are attempts without a control run on this or any host, for the
// reason in Why: the wall has no switch, or what is attacked is not in the
// kernel. They are made with every wall up, must fail, and do not count.
//
// A gap is left here on purpose: filling the disk, by bytes and by files. The disk
// limit is made by package run, above the driver; see the end-to-end tests.
func Others() []Attempt {
	none := func(f *field, m *message) bool { return false }
	list := []Attempt{
		{Name: "working-folder-proc", Tries: "start in /proc/self/fd/N by name", Why: "the driver refuses the request itself", refused: true, landed: gotNonce,
			arrange: func(f *field) error {
				if _, err := f.secret(); err != nil {
					return err
				}
				fd, err := unix.Open(f.home, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				if err != nil {
					return err
				}
				f.later(func() { unix.Close(fd) })
				f.spec.Workdir = fmt.Sprintf("/proc/self/fd/%d", fd)
				return f.attack("read", ".ssh/id_ed25519")
			}},
		{Name: "descriptor-bomb", Tries: "open descriptors without end", Seen: "the host sees more than the limit", Why: "the limit is the host's own where that is lower",
			arrange: func(f *field) error { return f.attack("descriptor-bomb", "1100000") },
			landed: func(f *field, m *message) bool {
				if m == nil || m.text != "look" {
					return false
				}
				var lim unix.Rlimit
				list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.pid))
				return err == nil && unix.Prlimit(m.pid, unix.RLIMIT_NOFILE, nil, &lim) == nil && (uint64(len(list)) > lim.Max || lim.Max > 1<<20)
			}},
		{Name: "kill-init-inside", Tries: "kill the sandbox's first process", Seen: "the owner sees it killed", Why: "see kill-init; this is the same from within its namespace, with every signal",
			arrange: func(f *field) error { return f.attack("kill", "1", "11") },
			landed:  func(f *field, m *message) bool { return m == nil && f.end.Reason == "host_lost" }},
		{Name: "selection", Tries: "paste into the owner's console (TIOCLINUX)", Why: "a console is needed to take it", landed: none,
			arrange: func(f *field) error { return f.attack("ioctl", "2", "0x541c", "\x02") }},
	}
	list = append(list, outletOthers()...)
	if runtime.GOARCH == "amd64" {
		list = append(list, Attempt{Name: "x32", Tries: "make calls by the numbers of x32", Why: "few kernels have them",
			arrange: func(f *field) error { return f.attack("x32", "0x400000") },
			landed: func(f *field, m *message) bool {
				return m != nil && m.text == "look" // with the filter the process has been killed
			}})
	}
	return list
}
