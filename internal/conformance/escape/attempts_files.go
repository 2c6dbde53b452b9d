//go:build linux

package escape

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
)

// readsSecret makes the attack on a secret file, given its path.
func readsSecret(args func(f *field, secret string) []string) func(f *field) error {
	return func(f *field) error {
		p, err := f.secret()
		if err != nil {
			return err
		}
		return f.attack(args(f, p)...)
	}
}

// target leaves a file of the host for the attack to write to.
func target(path func(f *field) string, args func(f *field, p string) []string) func(f *field) error {
	return func(f *field) error {
		p, err := f.file(path(f), "untouched\n")
		if err != nil {
			return err
		}
		f.slots["file"] = p
		return f.attack(args(f, p)...)
	}
}

func inHome(f *field) string { return filepath.Join(f.home, "notes") }
func inView(f *field) string { return filepath.Join(f.view, "tool") }

// fileAttempts are about files of the host.
func fileAttempts() []Attempt {
	const secretArrives, fileChanges = "the secret arrives", "the host's file changes"
	root, ro := []Wall{linux.NoRoot}, []Wall{linux.NoReadOnly}
	lock := []Wall{linux.NoLandlock}
	return []Attempt{
		{Name: "read-secret", Tries: "read a private key of the host by its path", Seen: secretArrives, Walls: root,
			arrange: readsSecret(func(f *field, p string) []string { return []string{"read", p} }), landed: gotNonce},
		{Name: "read-shadow", Tries: "read a file that only its owner may, as root inside", Seen: secretArrives, Walls: root, AsRoot: []Wall{linux.NoUserNS},
			arrange: func(f *field) error {
				p, err := f.file(filepath.Join(f.dir, "etc", "shadow"), f.nonce)
				if err != nil {
					return err
				}
				if err := os.Chmod(p, 0o600); err != nil {
					return err
				}
				return f.attack("read", p)
			}, landed: gotNonce},
		{Name: "list-home", Tries: "list the home folder of the host's user", Seen: "its names arrive", Walls: root,
			arrange: func(f *field) error {
				if _, err := f.file(filepath.Join(f.home, f.nonce), ""); err != nil {
					return err
				}
				return f.attack("list", f.home)
			}, landed: gotNonce},
		{Name: "absolute-link", Tries: "read through an absolute link in the workspace", Seen: secretArrives, Walls: root,
			arrange: readsSecret(func(f *field, p string) []string { return []string{"through-link", p, filepath.Join(f.ws, "link")} }), landed: gotNonce},
		{Name: "relative-link", Tries: "read through a relative link in the workspace", Seen: secretArrives, Walls: root,
			arrange: readsSecret(func(f *field, p string) []string {
				return []string{"through-link", strings.Replace(p, f.dir, "..", 1), filepath.Join(f.ws, "link")}
			}), landed: gotNonce},
		{Name: "planted-link", Tries: "read through a link that was in the workspace before", Seen: secretArrives, Walls: root,
			arrange: readsSecret(func(f *field, p string) []string {
				link := filepath.Join(f.ws, "planted")
				os.Symlink(p, link)
				return []string{"read", link}
			}), landed: gotNonce},
		{Name: "dots", Tries: "climb above the root with ..", Seen: secretArrives, Walls: root,
			arrange: readsSecret(func(f *field, p string) []string { return []string{"dots", p} }), landed: gotNonce},
		{Name: "proc-root", Tries: "read by way of /proc/self/root and /proc/1/root", Seen: secretArrives, Walls: root,
			arrange: readsSecret(func(f *field, p string) []string { return []string{"read", "/proc/1/root" + p, "/proc/self/root" + p} }), landed: gotNonce},
		{Name: "proc-cwd", Tries: "climb from /proc/self/cwd to what lies beside the workspace", Seen: secretArrives, Walls: root,
			arrange: readsSecret(func(f *field, p string) []string {
				return []string{"read", "/proc/self/cwd/.." + strings.TrimPrefix(p, f.dir)}
			}), landed: gotNonce},
		{Name: "chroot", Tries: "leave a root by way of another one", Seen: secretArrives, Walls: root, Only: bailey.IsolationContainer, Why: "the process level has no right to chroot at all",
			arrange: readsSecret(func(f *field, p string) []string {
				jail := filepath.Join(f.ws, "jail")
				f.folder(jail)
				return []string{"chroot", jail, p}
			}), landed: gotNonce},
		{Name: "write-outside", Tries: "write to a file outside of the workspace", Seen: fileChanges, Walls: root, AtProcess: lock,
			arrange: target(inHome, func(f *field, p string) []string { return []string{"write", p, f.nonce} }), landed: wrote},
		{Name: "create-outside", Tries: "make a file in the home folder that a shell would execute", Seen: "it is there", Walls: root, AtProcess: lock,
			arrange: func(f *field) error {
				f.slots["file"] = filepath.Join(f.home, ".bash_profile")
				return f.attack("create", filepath.Join(f.home, ".bash_profile"), f.nonce)
			}, landed: wrote},
		{Name: "hard-link", Tries: "link a file of the host into the workspace", Seen: "the host's file has two names", Walls: root, AtProcess: lock,
			arrange: func(f *field) error {
				p, err := f.file(inHome(f), "")
				f.slots["file"] = p
				f.attack("hardlink", p, filepath.Join(f.ws, "link"))
				return err
			}, landed: func(f *field, m *message) bool {
				var st unix.Stat_t
				return m == nil && unix.Stat(f.slots["file"].(string), &st) == nil && st.Nlink > 1
			}},
		{Name: "overwrite-shown", Tries: "change a program that is shown read-only", Seen: fileChanges, Walls: ro, AtProcess: lock,
			arrange: target(inView, func(f *field, p string) []string { return []string{"write", p, f.nonce} }), landed: wrote},
		{Name: "plant-shown", Tries: "add a program to a folder that is shown read-only", Seen: "it is there", Walls: ro, AtProcess: lock,
			arrange: func(f *field) error {
				f.slots["file"] = filepath.Join(f.view, "new")
				return f.attack("create", filepath.Join(f.view, "new"), f.nonce)
			}, landed: wrote},
		{Name: "remove-shown", Tries: "remove a file that is shown read-only", Seen: "it has gone", Walls: ro, AtProcess: lock,
			arrange: target(inView, func(f *field, p string) []string { return []string{"remove", p} }),
			landed: func(f *field, m *message) bool {
				_, err := os.Lstat(f.slots["file"].(string))
				return m == nil && os.IsNotExist(err)
			}},
		{Name: "chmod-shown", Tries: "make a file that is shown read-only executable", Seen: "its mode changes", Walls: ro,
			arrange: target(inView, func(f *field, p string) []string { return []string{"chmod", p, "0o777"} }),
			landed: func(f *field, m *message) bool {
				fi, err := os.Lstat(f.slots["file"].(string))
				return m == nil && err == nil && fi.Mode()&0o111 != 0
			}},
		{Name: "running-program", Tries: "overwrite a program of the host by way of /proc/PID/exe of a process that runs it (CVE-2019-5736)", Seen: fileChanges, Walls: ro, AtProcess: lock,
			arrange: func(f *field) error {
				b, err := os.ReadFile(f.suite.Attack)
				if err != nil {
					return err
				}
				p, err := f.file(inView(f), string(b))
				if err != nil {
					return err
				}
				f.slots["file"] = p
				f.attack("exe", p, f.nonce)
				return os.Chmod(p, 0o777)
			}, landed: wrote},
		{Name: "file-handle", Tries: "open a secret by its inode, past all folders (open_by_handle_at)", Seen: secretArrives, RootOnly: true, Why: "no right of an ordinary user's namespace suffices",
			Walls: []Wall{"seccomp.file-handles", linux.NoCaps}, AsRoot: []Wall{linux.NoUserNS},
			arrange: func(f *field) error {
				p, err := f.secret()
				if err != nil {
					return err
				}
				h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, p, 0)
				if err != nil {
					return err
				}
				return f.attack("handle", fmt.Sprint(h.Type()), hex.EncodeToString(h.Bytes()), f.ws)
			}, landed: gotNonce},
		{Name: "hidden-socket", Tries: "talk to an agent of the host by its socket's path", Seen: "the agent receives it", Walls: root,
			arrange: func(f *field) error {
				path := filepath.Join(f.home, "agent.sock")
				l, err := net.Listen("unix", path)
				if err != nil {
					return err
				}
				f.listen(l)
				f.attack("dial", "unix", path, f.nonce)
				return os.Chmod(path, 0o777)
			}, landed: heard},
		{Name: "other-disk", Tries: "read a file system that the host has mounted elsewhere", Seen: secretArrives, Walls: root, RootOnly: true, Why: "only root can mount one",
			arrange: func(f *field) error {
				at := filepath.Join(f.dir, "disk")
				if err := f.folder(at); err != nil {
					return err
				}
				if err := unix.Mount("disk", at, "tmpfs", 0, "size=64k"); err != nil {
					return err
				}
				f.later(func() { unix.Unmount(at, unix.MNT_DETACH) })
				p, err := f.file(filepath.Join(at, "data"), f.nonce)
				f.attack("read", p)
				return err
			}, landed: gotNonce},
		{Name: "other-sandbox", Tries: "read what another sandbox has written", Seen: secretArrives, Walls: root,
			arrange: func(f *field) error {
				p, err := f.file(filepath.Join(f.dir, "other", "upper", "file"), f.nonce)
				f.attack("read", p)
				return err
			}, landed: gotNonce},
		{Name: "home-by-view", Tries: "read the home folder where the sandbox has one of its own", Seen: secretArrives, Walls: []Wall{ViewHome},
			arrange: func(f *field) error {
				p, err := f.secret()
				if err != nil {
					return err
				}
				own := filepath.Join(f.dir, "own-home")
				if err := f.folder(own); err != nil {
					return err
				}
				if f.omits(ViewHome) {
					own = f.home
				}
				f.show(driver.Place{Kind: driver.Scratch, Source: own, Target: f.home, IsDir: true, HostIDs: true})
				return f.attack("read", p)
			}, landed: gotNonce},
	}
}
