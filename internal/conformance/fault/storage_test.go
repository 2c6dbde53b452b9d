//go:build linux

package fault

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// small mounts a tmpfs of few bytes as the person's data folder.
func small(t *testing.T, y *rig.Yard, options string) {
	t.Helper()
	testneeds.Root(t, "mounting")
	if err := os.MkdirAll(y.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", y.Data, "tmpfs", 0, "mode=0700,"+options); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(y.Data, y.Who.UID, y.Who.GID); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(y.Data, 0); err != nil {
			t.Error(err)
			unix.Unmount(y.Data, unix.MNT_DETACH)
		}
	})
}

// refused wants an error of Bailey's, with a code, and a host that is as it was.
func refused(t *testing.T, y *rig.Yard, host string, r rig.Result, codes ...bailey.Code) {
	t.Helper()
	ok := false
	for _, c := range codes {
		ok = ok || strings.Contains(r.Stderr, "["+string(c)+"]")
	}
	if r.Code != bailey.ExitBailey || !ok {
		t.Errorf("%v, want one of %v", r, codes)
	}
	rig.Same(t, "the host", host, y.Host())
}

// TestFullDataFolder: a command whose layer is full gets ENOSPC and what it did
// before is kept; a run that cannot begin says so.
func TestFullDataFolder(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			y := rig.New(t, who)
			small(t, y, "size=4m")
			y.Write("old", "as it was\n", 0o644)
			host := y.Host()
			r := y.Run("run", "--keep", "--", "sh", "-c", "echo kept > small; dd if=/dev/zero of=big bs=64k count=1000; echo dd=$?; rm big")
			if r.Code != 0 || !strings.Contains(r.Stdout, "dd=1") || !strings.Contains(r.Stderr, "No space left") {
				t.Error(r)
			}
			rig.Same(t, "the host", host, y.Host())
			if diff := y.Must("changes", "latest"); !strings.Contains(diff, "+kept") {
				t.Error(diff)
			}
			if err := os.WriteFile(filepath.Join(y.Data, "ballast"), make([]byte, 8<<20), 0o600); err == nil {
				t.Fatal("the data folder is not full")
			}
			refused(t, y, host, y.Run("run", "--keep", "--", "true"), bailey.CodeStorage, bailey.CodeSetupFailed)
			if err := os.Remove(filepath.Join(y.Data, "ballast")); err != nil {
				t.Fatal(err)
			}
			if list := y.List(); len(list) != 1 || list[0].State != "kept" {
				t.Errorf("%+v", list)
			}
			y.Must("discard", "--all")
		})
	}
}

// TestReadOnlyDataFolder: nothing runs where nothing can be kept.
func TestReadOnlyDataFolder(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			y := rig.New(t, who)
			small(t, y, "size=4m")
			if err := unix.Mount("", y.Data, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			refused(t, y, y.Host(), y.Run("run", "--", "touch", "ran"), bailey.CodeStorage)
		})
	}
}

// TestDataFolderRemoved: bailey ends with an error when what it keeps is taken
// away under it, and leaves nothing on the machine.
func TestDataFolderRemoved(t *testing.T) {
	each(t, func(s *site, level string) {
		r := s.launch(level, "linger.sh")
		namespaces := rig.Namespaces(rig.Descendants())
		if err := os.Rename(s.Data, s.Data+"-away"); err != nil {
			s.t.Fatal(err)
		}
		for range 3 {
			r.Process.Signal(os.Interrupt)
		}
		r.Process.Signal(unix.SIGTERM)
		r.Process.Signal(unix.SIGHUP)
		code, said := r.finish(s.t)
		if code == 0 || !strings.Contains(said, "[storage]") {
			s.t.Errorf("code %d: %s", code, said)
		}
		os.RemoveAll(s.Data)
		if err := os.Rename(s.Data+"-away", s.Data); err != nil {
			s.t.Fatal(err)
		}
		s.aftermath("the data folder was away", namespaces)
		s.settle("the data folder was away", "interrupted", "kept")
	})
}

// TestFewDescriptors: with any small number of descriptors bailey works, or
// says that it cannot, and leaves nothing.
func TestFewDescriptors(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			s := newSite(t, who)
			worked := 0
			for _, n := range []string{"8", "12", "16", "24", "32", "64", "100", "256", "700", "1024"} {
				program := s.Bailey().Path
				r := s.Finish(s.Native("/bin/sh", "-c", `ulimit -n "$0" && exec "$@"`, n, program, "run", "--discard", "--", "sh", "-c", "echo works"))
				if r.Code == 0 && r.Stdout == "works\n" {
					worked++
				} else if r.Code != bailey.ExitBailey || !strings.Contains(r.Stderr, "bailey: ") {
					t.Errorf("with %s descriptors: %v", n, r)
				}
				s.aftermath("with "+n+" descriptors", nil)
			}
			if worked == 0 {
				t.Error("it never worked")
			}
			s.List()
			if left := s.Runs(); len(left) > 0 {
				t.Errorf("runs are left: %v", left)
			}
		})
	}
}
