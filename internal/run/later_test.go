package run

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

func TestWait(t *testing.T) {
	testneeds.Root(t, "mounting, to have something that cannot be removed")
	h := &Host{}
	gone, stuck := filepath.Join(t.TempDir(), "gone"), filepath.Join(t.TempDir(), "stuck")
	at := filepath.Join(stuck, "at")
	for _, d := range []string{gone + "/a/b", at} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	h.removeLater(gone)
	h.removeLater(stuck)
	if err := h.Wait(); err == nil {
		t.Error("what could not be removed was not told")
	}
	if _, err := os.Lstat(gone); err == nil {
		t.Error("it is still there after Wait")
	}
	if err := h.Wait(); err != nil {
		t.Error("told twice:", err)
	}
}
