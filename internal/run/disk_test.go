package run

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// A disk limit that was asked for holds everywhere or is refused: a persistent
// home lies elsewhere, and so does a workspace that is written straight through.
func TestDiskLimitHoldsEverywhere(t *testing.T) {
	f, err := folder.OpenAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Create(folder.Record{Command: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := &builder{run: r, req: Request{Home: "agent", Limits: bailey.Limits{Disk: 64 << 20}}}
	if err := b.openDisk(); bailey.CodeOf(err) != bailey.CodeLimitUnavailable {
		t.Errorf("got %v", err)
	}
	b.req.Home, b.req.Writable = "", true
	if err := b.openDisk(); bailey.CodeOf(err) != bailey.CodeLimitUnavailable {
		t.Errorf("written straight through: %v", err)
	}
	b.req.Limits.Disk = 0
	if err := b.openDisk(); err != nil {
		t.Error(err)
	}
}

// A command can close its home to itself; the next one has it open.
func TestPersistentHomeOpensAgain(t *testing.T) {
	f, err := folder.OpenAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{host: &Host{Folder: f}, plan: &workspace.Plan{Dir: "/project"}, req: Request{Home: "agent"},
		owner: owner{os.Geteuid(), os.Getegid()}}
	for range 2 {
		dir, err := b.homeFolder()
		if err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(dir)
		if err != nil || fi.Mode().Perm() != 0o700 {
			t.Fatal(fi, err)
		}
		if err := os.Chmod(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// A layer counts as empty only if the workspace's folder itself has not been
// changed either.
func TestEmptyLayer(t *testing.T) {
	host, upper := t.TempDir(), t.TempDir()
	if !emptyLayer(upper, host) {
		t.Error("an empty one is not")
	}
	if err := os.Chmod(upper, 0o777); err != nil {
		t.Fatal(err)
	}
	if emptyLayer(upper, host) {
		t.Error("the mode of the folder is lost")
	}
	if err := os.Chmod(upper, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(upper, "user.mark", []byte("x"), 0); err == nil && emptyLayer(upper, host) {
		t.Error("an attribute of the folder is lost")
	}
}
