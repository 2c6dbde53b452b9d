//go:build linux

package stay

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// TestFullDisk is T32 and T84: a sandbox has the disk that was asked for, at every
// level; when it is full programs and the API are told, and the sandbox works.
func TestFullDisk(t *testing.T) {
	testneeds.Tool(t, "mke2fs")
	testneeds.Host(t, testneeds.MountExt4)
	each(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		if !y.Who.Root() {
			says(t, y, bailey.ExitBailey, "[limit_unavailable]", "create", "--disk", "64M") // never without it
			return
		}
		for _, level := range levels {
			name := level.String()
			b := makes(t, d, api.SandboxSpec{Name: name, Isolation: level, Limits: bailey.Limits{Disk: 64 << 20}})
			home := strings.TrimSpace(y.Must("exec", name, "--", "sh", "-c", "echo $HOME"))
			says(t, y, 1, "No space left", "exec", name, "--", "sh", "-c", "cd; dd if=/dev/zero of=big bs=1M count=100")
			if _, err := b.Files().WriteFile(t.Context(), home+"/f", noise(8<<20), 0); bailey.CodeOf(err) != bailey.CodeDiskFull {
				t.Errorf("%s: a write: %v", level, err)
			}
			y.Write("file", string(noise(8<<20)), 0o644)
			says(t, y, bailey.ExitBailey, "[disk_full]", "cp", y.Work+"/file", name+":"+home+"/f")
			says(t, y, 0, "ok", "exec", name, "--", "sh", "-c", "cd; rm big; echo kept > kept; echo ok")
			y.Must("pause", "--to-disk", name)
			says(t, y, 0, "kept", "exec", name, "--", "cat", home+"/kept")
			y.Must("create", "--name", name+"-large", "--isolation", name, "--disk", "50G")
			if out := y.Must("exec", name+"-large", "--", "df", "-BG", "--output=size", home); !strings.Contains(out, "49G") && !strings.Contains(out, "50G") {
				t.Errorf("%s: 50G are %s", level, out)
			}
			y.Must("rm", name, name+"-large")
		}
	})
}

// TestNothingIsLeftOnASmallStore is T33: many sandboxes on a small disk, one after
// the other, leave as much of it as there was.
func TestNothingIsLeftOnASmallStore(t *testing.T) {
	testneeds.Root(t, "a disk of its own")
	testneeds.Tool(t, "mke2fs")
	testneeds.Host(t, testneeds.MountExt4)
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			y := rig.New(t, who)
			img := filepath.Join(y.Base, "store")
			if err := os.WriteFile(img, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(img, 400<<20); err != nil {
				t.Fatal(err)
			}
			for _, line := range [][]string{{"mke2fs", "-q", "-t", "ext4", "-m", "0", img}, {"mount", "-o", "loop", img, y.Data}} {
				if line[0] == "mount" {
					if err := os.Mkdir(y.Data, 0o700); err != nil {
						t.Fatal(err)
					}
				}
				if out, err := command(line...); err != nil {
					t.Fatalf("%v: %v %s", line, err, out)
				}
			}
			t.Cleanup(func() {
				if out, err := command("umount", y.Data); err != nil {
					t.Errorf("%v %s", err, out)
				}
			})
			if err := os.Chown(y.Data, who.UID, who.GID); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(y.Data, 0o700); err != nil {
				t.Fatal(err)
			}
			y.Serve()
			round := func(i int) {
				level := levels[i%2].String()
				id := strings.TrimSpace(y.Must("create", "--isolation", level, "--", "sh", "-c", "cd; head -c 30000000 /dev/urandom > f; exec sleep 1000"))
				y.Must("exec", id, "--", "sh", "-c", "cd; mkdir d; for i in 1 2 3 4 5 6 7 8 9; do echo $i > d/$i; done; head -c 9000000 /dev/zero > d/z")
				y.Must("rm", id)
			}
			round(0)
			round(1)
			var bytes, files uint64
			waitUntil(t, "all is removed", func() bool { bytes, files = used(t, y.Data); return bytes < 150<<20 })
			for i := range 14 { // 540 MB on a disk of 400
				round(i)
			}
			var after, left uint64
			waitUntil(t, fmt.Sprintf("%d bytes and %d files in use, as before", bytes, files), func() bool {
				after, left = used(t, y.Data)
				return after <= bytes+4<<20 && left <= files+100
			})
			says(t, y, 0, "", "gc", "--dry-run")
			if out := y.Must("gc", "--dry-run", "--json"); strings.Contains(out, "kind") {
				t.Errorf("left behind: %s", out)
			}
		})
	}
}

// used says what of a file system is in use: bytes and inodes.
func used(t *testing.T, dir string) (bytes, files uint64) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return (st.Blocks - st.Bfree) * uint64(st.Bsize), st.Files - st.Ffree
}
