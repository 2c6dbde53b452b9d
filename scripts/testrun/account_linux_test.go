package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReachableLeavesOutOthersHomes(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	closed, open := filepath.Join(dir, "closed", "bin"), filepath.Join(dir, "open", "bin")
	for _, d := range []string{closed, open} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(closed), 0o700); err != nil {
		t.Fatal(err)
	}
	// Whoever runs this owns the folders; somebody else is asked about. What
	// lies above dir may be closed to them already.
	stranger := os.Getuid() + 4242
	above := reachable(stranger, stranger, dir)
	want := ""
	if above != "" {
		want = open
	}
	if got := reachable(stranger, stranger, closed+":"+open+":relative:"+dir+"/absent"); got != want {
		t.Errorf("a stranger reaches %q, wanted %q", got, want)
	}
	if got := reachable(os.Getuid(), os.Getgid(), closed); above != "" && got != closed {
		t.Errorf("the owner reaches %q", got)
	}
}
