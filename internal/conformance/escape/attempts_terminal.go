//go:build linux

package escape

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// terminalPair opens a terminal of the host. Its master does not block and its
// slave is not the caller's controlling terminal.
func terminalPair() (master int, slave string, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, "", err
	}
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		unix.Close(master)
		return -1, "", err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	return master, "/dev/pts/" + itoa(n), err
}

// terminalAttempts are about the terminal of the person who started the
// sandbox.
func terminalAttempts() []Attempt {
	types := func(name, tries, request string) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: "who reads the terminal next reads it", Walls: []Wall{"seccomp.tiocsti"},
			Needs: "/proc/sys/dev/tty/legacy_tiocsti",
			arrange: func(f *field) error {
				master, name, err := terminalPair()
				if err != nil {
					return err
				}
				f.later(func() { unix.Close(master) })
				slave, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
				if err != nil {
					return err
				}
				f.later(func() { slave.Close() })
				if err := os.Chmod(name, 0o666); err != nil {
					return err
				}
				f.slots["terminal"] = slave
				f.spec.Entry.Stdio[0] = slave
				return f.attack("ioctl", "0", request, f.nonce+"\n")
			},
			landed: func(f *field, m *message) bool {
				if m != nil {
					return false
				}
				slave := f.slots["terminal"].(*os.File)
				waiting, err := unix.IoctlGetInt(int(slave.Fd()), unix.TIOCINQ)
				if err != nil || waiting == 0 {
					return false
				}
				buf := make([]byte, 256)
				n, _ := slave.Read(buf)
				return strings.Contains(string(buf[:n]), f.nonce)
			}}
	}
	prints := func(name, tries, text string) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: "the person's terminal receives the sequence", Walls: []Wall{TerminalFilter},
			arrange: func(f *field) error { return f.attack("print", text) },
			landed: func(f *field, m *message) bool {
				if m != nil {
					return false
				}
				out := &strings.Builder{}
				if f.omits(TerminalFilter) {
					out.WriteString(f.log.String())
				} else {
					filter := terminal.NewFilter(out)
					filter.Write([]byte(f.log.String()))
					filter.Close()
				}
				return strings.Contains(out.String(), text)
			}}
	}
	return []Attempt{
		types("tiocsti", "type into the owner's terminal (CVE-2017-5226)", "0x5412"),
		types("tiocsti-high", "type into the owner's terminal by a number with high bits (CVE-2019-10063)", "0x100005412"),
		prints("clipboard", "set the person's clipboard (OSC 52)", "\x1b]52;c;cm0gLXJmIC8K\x07"),
		prints("answer-back", "have the terminal type its title (CSI 21 t)", "\x1b]0;id\x07\x1b[21t"),
		prints("device-control", "have the terminal report a setting as input (DECRQSS)", "\x1bP$q\"p\x1b\\"),
		prints("hidden-link", "hide where a link leads (OSC 8)", "\x1b]8;;file:///etc/passwd\x1b\\text\x1b]8;;\x1b\\"),
		prints("file-transfer", "have the terminal write a file (OSC 1337)", "\x1b]1337;File=name=LmJhc2hyYw==:cm0K\x07"),
	}
}
