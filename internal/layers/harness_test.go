package layers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code bailey.Code, words ...string) {
	t.Helper()
	if bailey.CodeOf(err) != code {
		t.Fatalf("got %v, want an error with code %s", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("%v does not name %q", err, w)
		}
	}
}

// ordinary says that overlays are an ordinary user's.
func ordinary() bool { return os.Geteuid() != 0 || os.Getenv(envInside) == "user" }

// tempDir is t.TempDir, also for what a layer's modes have closed.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "layers")
	must(t, err)
	t.Cleanup(func() {
		if err := folder.RemoveTree(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func open(t testing.TB, home string) *Store {
	t.Helper()
	s, err := Open(home, Options{UserXattr: ordinary()})
	must(t, err)
	return s
}

// setMark sets one of overlayfs's marks, as a mounted overlay would.
func setMark(t testing.TB, path, name, value string) {
	t.Helper()
	prefix := trustedMarks
	if ordinary() {
		prefix = userMarks
		testneeds.Host(t, testneeds.UserXattr)
	}
	must(t, unix.Lsetxattr(path, string(prefix)+name, []byte(value), 0))
}

// sample makes an upper folder with one of everything.
func sample(t testing.TB, dir string) string {
	t.Helper()
	up := filepath.Join(dir, "upper")
	must(t, os.MkdirAll(up+"/etc/deep/er", 0o755))
	must(t, os.WriteFile(up+"/etc/passwd", []byte("root:x:0:0\n"), 0o644))
	must(t, os.Link(up+"/etc/passwd", up+"/etc/passwd-"))
	must(t, os.WriteFile(up+"/etc/deep/er/closed", []byte("secret"), 0o000))
	must(t, os.Symlink("/etc/passwd", up+"/link"))
	must(t, unix.Mkfifo(up+"/pipe", 0o600))
	must(t, unix.Mknod(up+"/socket", unix.S_IFSOCK|0o700, 0))
	must(t, unix.Mknod(up+"/etc/gone", unix.S_IFCHR, 0))
	must(t, os.WriteFile(up+"/.wh.real", []byte("a file and no deletion"), 0o644))
	must(t, os.WriteFile(up+"/bytes-\xff\xfe", []byte{0, 1, 2}, 0o4755))
	must(t, os.Mkdir(up+"/fresh", 0o2775))
	setMark(t, up+"/fresh", "opaque", "y")
	f, err := os.Create(up + "/sparse")
	must(t, err)
	_, err = f.WriteAt([]byte("end"), 8<<20)
	must(t, err)
	must(t, f.Close())
	if err := unix.Setxattr(up+"/etc/passwd", "user.colour", []byte("b\x00lue"), 0); err != nil {
		t.Log("no user attributes here: ", err)
	}
	must(t, os.Chmod(up+"/etc/deep/er", 0o311))
	return up
}

// envInside says that this is the test binary in namespaces of its own, where it
// may mount: root's, or a user's.
const envInside = "LAYERS_TEST_INSIDE"

// inside runs the test in namespaces of its own, and says whether it is there.
func inNamespaces(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envInside) != "" {
		return true
	}
	testneeds.Host(t, testneeds.UserNS)
	testneeds.Host(t, testneeds.Overlay)
	kinds := []string{"user"}
	if os.Geteuid() == 0 {
		kinds = []string{"root", "user"}
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			args := []string{"-test.run=^" + strings.Split(t.Name(), "/")[0] + "$", "-test.v"}
			for _, a := range os.Args[1:] {
				if strings.HasPrefix(a, "-rapid.") || strings.HasPrefix(a, "-layers.") {
					args = append(args, a)
				}
			}
			cmd := exec.Command("/proc/self/exe", args...)
			cmd.Env = append(os.Environ(), envInside+"="+kind)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
			if kind == "user" {
				cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
				cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
				cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
			}
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	return false
}

// mounted mounts an overlay as the driver does: lower, lowest first, and above them
// a layer folder with upper and work, or "" for none.
func mounted(t testing.TB, lower []string, layer string) string {
	t.Helper()
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	at, err := os.MkdirTemp("", "merged")
	must(t, err)
	var dirs []string
	for i := len(lower) - 1; i >= 0; i-- {
		dirs = append(dirs, lower[i])
	}
	if layer == "" && len(dirs) == 1 {
		empty, err := os.MkdirTemp(filepath.Dir(lower[0]), "empty")
		must(t, err)
		dirs = append(dirs, empty)
	}
	fsfd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	must(t, err)
	defer unix.Close(fsfd)
	for _, d := range dirs {
		must(t, unix.FsconfigSetString(fsfd, "lowerdir+", d))
	}
	if layer != "" {
		must(t, os.MkdirAll(layer+"/upper", 0o755))
		must(t, os.MkdirAll(layer+"/work", 0o755))
		must(t, unix.FsconfigSetString(fsfd, "upperdir", layer+"/upper"))
		must(t, unix.FsconfigSetString(fsfd, "workdir", layer+"/work"))
		must(t, unix.FsconfigSetString(fsfd, "index", "off"))
	}
	if ordinary() {
		must(t, unix.FsconfigSetFlag(fsfd, "userxattr"))
	} else {
		must(t, unix.FsconfigSetString(fsfd, "redirect_dir", "nofollow"))
		must(t, unix.FsconfigSetString(fsfd, "metacopy", "off"))
	}
	must(t, unix.FsconfigCreate(fsfd))
	m, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(m)
	must(t, unix.MoveMount(m, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH))
	return at
}

func unmount(t testing.TB, at string) {
	t.Helper()
	must(t, unix.Unmount(at, 0))
	must(t, os.Remove(at))
}

// listing says what a program sees of a tree: path to a line about it.
type listing map[string]string

func list(t testing.TB, root string) listing {
	t.Helper()
	l := listing{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			line += fmt.Sprintf(" %d.%d %s", st.Mtim.Sec, st.Mtim.Nsec, hex.EncodeToString(sum[:]))
		case unix.S_IFLNK:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		if v, err := xattrValue(p, "user.test"); err == nil {
			line += " user.test=" + v
		}
		l[rel] = line
		return nil
	})
	must(t, err)
	return l
}

func (l listing) diff(o listing) string {
	var all []string
	for p := range l {
		if o[p] != l[p] {
			all = append(all, fmt.Sprintf("%q: %q and %q", p, l[p], o[p]))
		}
	}
	for p := range o {
		if _, ok := l[p]; !ok {
			all = append(all, fmt.Sprintf("%q: missing, %q", p, o[p]))
		}
	}
	sort.Strings(all)
	return strings.Join(all, "\n")
}

func hashed(t testing.TB, s *Store, id string) string {
	t.Helper()
	h, err := s.Hash(context.Background(), id)
	must(t, err)
	return h
}
