package folder

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Where a file system knows the mark at all, the folder of runs carries it.
func TestRunsAreSpread(t *testing.T) {
	marked := func(dir string, set bool) bool {
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if set {
			spread(int(d.Fd()))
		}
		flags, err := unix.IoctlGetUint32(int(d.Fd()), unix.FS_IOC_GETFLAGS)
		return err == nil && flags&0x00020000 != 0
	}
	able := marked(t.TempDir(), true)
	f := open(t)
	create(t, f)
	if got := marked(filepath.Join(f.Path(), "runs"), false); got != able {
		t.Errorf("the mark is %v, the file system can: %v", got, able)
	}
}

// A record that nobody waits for is there all the same.
func TestSaveSoon(t *testing.T) {
	f := open(t)
	r := create(t, f)
	r.Record.State = StateKept
	if err := r.SaveSoon(); err != nil {
		t.Fatal(err)
	}
	again, err := f.Find(r.ID())
	if err != nil || again.Record.State != StateKept {
		t.Fatal(again, err)
	}
	r.Close()
	wantErr := r.SaveSoon()
	if wantErr == nil {
		t.Error("saved without the lock")
	}
}
