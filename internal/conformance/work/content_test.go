//go:build linux

package work

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// before makes a workspace with one of each: it is run on the host.
const before = `
mkdir -p plain deep/er/est replaced emptied gone/with/all renamed "odd $(printf 'n\nl') x" .hidden
echo one > plain/one; echo two > plain/two; echo three > plain/three; echo four > plain/four
ln plain/one plain/also-one
ln -s one plain/link; ln -s /nowhere plain/dangling; ln -s ../plain deep/to-plain
mkfifo plain/fifo
truncate -s 64M sparse; printf end | dd of=sparse bs=1 seek=1000000 conv=notrunc status=none
printf bad > "$(printf 'latin-\351\377')"
echo long > "$(printf '%0250d' 7)"
echo x > "odd $(printf 'n\nl') x/ -rf *"
echo r > replaced/old; echo e > emptied/old; echo g > gone/with/all/files; echo f > renamed/file
echo becomes-dir > kind1; mkdir -p kind2/sub; echo k > kind2/sub/f; echo l > kind3; ln -s kind3 kind4
chmod 0555 plain/four; chmod 0700 deep/er; echo set > mode; chmod 0640 mode
`

// changes is what a command does to it; it is run inside and, on a copy, on the host.
const changes = `
echo ONE > plain/new; echo more >> plain/two; rm plain/three; mv plain/four plain/five
ln plain/new plain/new-link
rm plain/link; ln -s two plain/link; rm plain/fifo; mkfifo deep/er/fifo2
printf middle | dd of=sparse bs=1 seek=30000000 conv=notrunc status=none
truncate -s 128M sparse2
rm "$(printf 'latin-\351\377')"; printf new > "$(printf 'utf-8-\377 \033[31m')"
mv "$(printf '%0250d' 7)" "$(printf '%0255d' 8)"
rm -r replaced; mkdir replaced; echo n > replaced/new
rm emptied/old; rm -r gone; mv renamed moved
rm kind1; mkdir kind1; echo in > kind1/in; rm -r kind2; echo file > kind2; rm kind3; ln -s kind2 kind3; rm kind4; mkdir kind4
chmod 0755 mode; chmod 0500 deep/er/est; mkdir -p a/b/c/d/e; : > a/b/c/d/e/empty
rm "odd $(printf 'n\nl') x/ -rf *"
`

// closed are changes that leave what only root can read.
const closed = "mkdir locked; echo s > locked/s; chmod 0 locked/s; chmod 0311 locked\n"

// changesOf gives the changes that a person's change set can hold.
func changesOf(y *rig.Yard) string {
	if y.Who.Root() {
		return changes + closed
	}
	return changes
}

// listing shows every name, kind, mode, size and content as a program sees it.
const listing = `find . -printf '%p %y %m %n %s %l\n' | LC_ALL=C sort; cksum sparse plain/two; cat deep/to-plain/one`

// grow makes the workspace, and a copy of it that becomes what the sandbox's
// change set has to make of the workspace.
func grow(t *testing.T, y *rig.Yard) (control string) {
	t.Helper()
	control = filepath.Join(filepath.Dir(y.Work), "control")
	native(t, y, "sh", "-euc", before)
	native(t, y, "cp", "-a", y.Work, control)
	native(t, y, "sh", "-euc", "cd ../control; "+changesOf(y))
	return control
}

// follow looks at the workspace from inside, changes it, applies that, and
// compares with what the same commands did on the host.
func follow(t *testing.T, y *rig.Yard, l level, flags ...string) {
	t.Helper()
	control := grow(t, y)
	host := y.Host()
	want := native(t, y, "sh", "-euc", listing)
	r := y.Run(l.run(append(flags, "--keep"), "sh", "-euc", listing+"\n"+changesOf(y))...)
	if r.Code != 0 {
		t.Fatal(r)
	}
	// Size and link count of folders are the file system's own affair.
	if got, want := files(r.Stdout), files(want); got != want {
		rig.Same(t, "seen inside", want, got)
	}
	rig.Same(t, "the host before apply", host, y.Host())
	y.Must("changes", "latest")
	y.Must("apply", "latest")
	rig.Same(t, "applied", essence(t, control), essence(t, y.Work))
	y.Must("apply", "--revert", "latest")
	native(t, y, "sh", "-euc", "chmod -R u+rwX ../control; rm -rf ../control; cd ..; mkdir control; cd control; "+before)
	rig.Same(t, "reverted", essence(t, control), essence(t, y.Work))
	y.Must("discard", "latest")
	native(t, y, "rm", "-rf", control)
}

func files(listing string) string {
	var lines []string
	for line := range strings.SplitSeq(listing, "\n") {
		if f := strings.Split(line, " d "); len(f) == 2 {
			line = f[0] + " d " + strings.Split(f[1], " ")[0]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// essence is a Tree without times, links of folders, and where it lies.
func essence(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	for line := range strings.SplitSeq(rig.Tree(t, dir), "\n") {
		line = strings.ReplaceAll(line, dir, "")
		head, rest, _ := strings.Cut(line, " mtime=")
		_, rest, _ = strings.Cut(rest, " ")
		if strings.Contains(head, " d") {
			head, _, _ = strings.Cut(head, " links=")
		}
		lines = append(lines, head+" "+rest)
	}
	return strings.Join(lines, "\n")
}

// TestContent: every kind of file is seen as it is, and every kind of change
// arrives on the host as if the command had run there.
func TestContent(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, l level) { follow(t, y, l) })
}

// TestContentCopied is the same with a full copy.
func TestContentCopied(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) { follow(t, rig.New(t, who), levels[0], "--copy") })
	}
}

// mount makes a file system and mounts it, for the person, until the test ends.
func mount(t *testing.T, y *rig.Yard, kind, at string) {
	t.Helper()
	testneeds.Root(t, "mounting")
	source, image := "none", filepath.Join(y.Base, kind+".img")
	args := []string{"-t", kind}
	if kind == "tmpfs" {
		args = append(args, "-o", "size=512m")
	} else {
		testneeds.Host(t, testneeds.MountOf(kind))
		mkfs := testneeds.Tool(t, "mkfs."+kind)
		for _, step := range [][]string{{"truncate", "-s", "512M", image}, {mkfs, "-q", image}} {
			if out, err := exec.Command(step[0], step[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", step, err, out)
			}
		}
		source = image
		args = append(args, "-o", "loop")
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", append(args, source, at)...).CombinedOutput(); err != nil {
		t.Fatalf("mount %s: %v: %s", kind, err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Errorf("unmount %s: %v", at, err)
			unix.Unmount(at, unix.MNT_DETACH)
		}
	})
	if err := os.Chown(at, y.Who.UID, y.Who.GID); err != nil {
		t.Fatal(err)
	}
}

// place makes the workspace, or the data folder, another folder.
func place(t *testing.T, y *rig.Yard, work, data string) {
	t.Helper()
	if work != "" {
		y.Work = work
		if err := os.Mkdir(work, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(work, y.Who.UID, y.Who.GID); err != nil {
			t.Fatal(err)
		}
	}
	if data != "" {
		y.Data = data
		y.Set("BAILEY_HOME", data)
	}
}

// TestFileSystems: the workspace, the data folder, or both lie on each file system.
func TestFileSystems(t *testing.T) {
	for _, kind := range []string{"tmpfs", "xfs", "btrfs", "ext4"} {
		for _, who := range rig.People() {
			t.Run(kind+"/"+who.Name, func(t *testing.T) {
				y := rig.New(t, who)
				fs := filepath.Join(y.Base, "fs")
				mount(t, y, kind, fs)
				if who.Root() {
					t.Run("workspace", func(t *testing.T) {
						place(t, y, fs+"/work", "")
						follow(t, y, levels[0])
					})
				}
				t.Run("both", func(t *testing.T) {
					place(t, y, fs+"/work2", fs+"/data")
					follow(t, y, levels[0])
				})
				if kind == "tmpfs" {
					t.Run("data", func(t *testing.T) {
						place(t, y, y.Base+"/work3", "")
						follow(t, y, levels[0])
					})
				}
				if err := exec.Command("rm", "-rf", fs+"/data").Run(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestMountBelowTheWorkspace: what an overlay would hide is copied.
func TestMountBelowTheWorkspace(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			y := rig.New(t, who)
			mount(t, y, "tmpfs", filepath.Join(y.Work, "sub"))
			y.Write("sub/file", "below\n", 0o644)
			y.Write("top", "top\n", 0o644)
			host := y.Host()
			if out := y.Must("run", "--keep", "--", "sh", "-c", "cat top sub/file; echo changed > sub/file; rm top"); out != "top\nbelow\n" {
				t.Error(out)
			}
			rig.Same(t, "the host", host, y.Host())
			y.Must("apply", "latest")
			if got := read(t, filepath.Join(y.Work, "sub/file")); got != "changed\n" {
				t.Error(got)
			}
			if _, err := os.Lstat(filepath.Join(y.Work, "top")); !os.IsNotExist(err) {
				t.Error(err)
			}
		})
	}
}

// TestGitWorktree: the git folder that lies outside is there, and changes with
// the workspace.
func TestGitWorktree(t *testing.T) {
	testneeds.Tool(t, "git")
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		main := filepath.Join(y.Base, "repository")
		native(t, y, "sh", "-euc", `git init -q -b main "$0"; cd "$0"; git config user.name A; git config user.email a@example.test; echo x > f; git add f; git commit -qm one; git worktree add -q "$1"`, main, filepath.Join(y.Work, "tree"))
		y.Work = filepath.Join(y.Work, "tree")
		before := rig.Tree(t, main)
		out := y.Must(l.run([]string{"--keep"}, "sh", "-euc", "git status --porcelain; echo y >> f; git commit -qam two; git log --format=%s")...)
		if out != "two\none\n" {
			t.Error(out)
		}
		rig.Same(t, "the repository", before, rig.Tree(t, main))
		y.Must("apply", "latest")
		if got := native(t, y, "sh", "-euc", "git fsck; git status --porcelain; git log --format=%s"); got != "two\none\n" {
			t.Error(got)
		}
	})
}
