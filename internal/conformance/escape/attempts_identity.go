//go:build linux

package escape

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
)

// became says whether the sender has a capability it must not have.
func became(capability uint) check {
	return func(f *field, m *message) bool {
		return m != nil && strings.HasPrefix(m.text, "look") && effective(m.pid, capability)
	}
}

// plantProgram makes a copy of the attacker that belongs to the host's root,
// where an ordinary user of the sandbox may execute it: in the workspace, or in
// the image where there is one. It gives the path outside and inside.
func plantProgram(f *field) (outside, inside string, err error) {
	b, err := os.ReadFile(f.suite.Attack)
	if err != nil {
		return "", "", err
	}
	f.spec.User = driver.User{UID: 1000, GID: 1000, HostUID: 1000, HostGID: 1000}
	outside = filepath.Join(f.ws, "program")
	inside = outside
	if f.mode.Level.OwnRoot() {
		outside, inside = filepath.Join(f.dir, "image", "program"), "/program"
	}
	if err := os.WriteFile(outside, b, 0o755); err != nil {
		return "", "", err
	}
	return outside, inside, os.Chmod(outside, 0o755)
}

// identityAttempts are about users, capabilities and keys.
func identityAttempts() []Attempt {
	gain := []Wall{linux.NoNoSUID, linux.NoNNP}
	const plant = "only root can plant one"
	return []Attempt{
		{Name: "set-user-id", Tries: "become another user by a set-user-id program in the workspace or image", Seen: "the host sees the process as root of the sandbox", Walls: gain,
			// The kernel takes neither from somebody who could still gain privileges.
			Fallen:   map[Wall][]Wall{linux.NoNNP: {linux.NoSeccomp, linux.NoLandlock}},
			RootOnly: true, Why: plant,
			arrange: func(f *field) error {
				p, inside, err := plantProgram(f)
				if err != nil {
					return err
				}
				f.attack("exec", inside, "hold")
				return os.Chmod(p, 0o755|os.ModeSetuid)
			},
			landed: func(f *field, m *message) bool {
				if m == nil || m.text != "look" {
					return false
				}
				ids := strings.Fields(status(m.pid, "Uid")) // real, effective, saved, file system
				return len(ids) == 4 && ids[0] != ids[1]
			}},
		{Name: "file-capabilities", Tries: "gain a capability by a program in the workspace or image that has it", Seen: "the host sees the process hold it", Walls: append(gain, linux.NoCaps),
			RootOnly: true, Why: plant,
			arrange: func(f *field) error {
				p, inside, err := plantProgram(f)
				if err != nil {
					return err
				}
				f.attack("exec", inside, "hold")
				// vfs_cap_data, version 2, with the effective bit (capability.h).
				data := binary.LittleEndian.AppendUint32(nil, 0x02000001)
				data = binary.LittleEndian.AppendUint32(data, 1<<unix.CAP_SYS_PTRACE)
				data = append(data, make([]byte, 12)...)
				return unix.Setxattr(p, "security.capability", data, 0)
			}, landed: became(unix.CAP_SYS_PTRACE)},
		{Name: "set-user-id-left", Tries: "leave a set-user-id program in the workspace, for whoever executes it on the host", Seen: "the host's file has the bit", Walls: []Wall{linux.NoNoSetUID},
			arrange: target(func(f *field) string { return filepath.Join(f.ws, "program") }, func(f *field, p string) []string { return []string{"chmod", p, "0o4755"} }),
			landed: func(f *field, m *message) bool {
				fi, err := os.Lstat(f.slots["file"].(string))
				return m == nil && err == nil && fi.Mode()&os.ModeSetuid != 0
			}},
		{Name: "capability-left", Tries: "leave a program with capabilities in the workspace, for whoever executes it on the host", Seen: "the host's file has them", Walls: []Wall{linux.NoCaps},
			arrange: target(func(f *field) string { return filepath.Join(f.ws, "program") }, func(f *field, p string) []string { return []string{"setcap", p} }),
			landed: func(f *field, m *message) bool {
				n, err := unix.Getxattr(f.slots["file"].(string), "security.capability", nil)
				return m == nil && err == nil && n > 0
			}},
		{Name: "root-again", Tries: "regain capabilities by executing a program as root", Seen: "the host sees the process hold CAP_SYS_ADMIN", Walls: []Wall{linux.NoCaps},
			arrange: func(f *field) error { return f.attack("exec", f.suite.Attack, "hold") }, landed: became(unix.CAP_SYS_ADMIN)},
		{Name: "ambient", Tries: "raise an ambient capability", Seen: "the host sees the process hold it", Walls: []Wall{linux.NoCaps},
			arrange: func(f *field) error { return f.attack("ambient", fmt.Sprint(unix.CAP_NET_ADMIN)) }, landed: became(unix.CAP_NET_ADMIN)},
		{Name: "become-user", Tries: "become a user of the host", Seen: "the host sees the process under that id", Walls: []Wall{linux.NoUserNS}, AtProcess: []Wall{linux.NoCaps},
			RootOnly: true, Why: "an ordinary user's namespace has one id",
			arrange: func(f *field) error { return f.attack("setuid", "4242") },
			landed: func(f *field, m *message) bool {
				return m != nil && m.text == "look" && strings.HasPrefix(status(m.pid, "Uid"), "4242\t")
			}},
		{Name: "host-root", Tries: "be the host's root", Seen: "the host sees the process as root", Walls: []Wall{linux.NoUserNS},
			RootOnly: true, Why: "an ordinary user's namespace has one id",
			arrange: func(f *field) error { return f.attack("hold") },
			landed: func(f *field, m *message) bool {
				return m != nil && m.text == "look" && strings.HasPrefix(status(m.pid, "Uid"), "0\t")
			}},
		{Name: "keyring", Tries: "read a key of the owner's session", Seen: "the key arrives", Walls: []Wall{"seccomp.keyring", linux.NoKeyring}, alone: true,
			arrange: func(f *field) error {
				id, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) // without a name
				if err != nil {
					return err
				}
				f.later(func() { unix.KeyctlInt(unix.KEYCTL_INVALIDATE, id, 0, 0, 0) })
				if _, err := unix.AddKey("user", "token", []byte(f.nonce), id); err != nil {
					return err
				}
				return f.attack("keyring", "token")
			}, landed: gotNonce},
	}
}
