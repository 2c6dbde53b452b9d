package rootfiles

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Whoever made an image, or ran in a sandbox that was kept, cannot hold up who looks
// for authorities in it.
func TestHostileRootIsLookedAtInTime(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, strings.Repeat("d/", 100))
	jvm := filepath.Join(dir, "usr/lib/jvm")
	for _, d := range []string{deep, jvm} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Each goes down 100 folders, and up and down from there again and again.
	to := "/" + strings.Repeat("d/", 100) + strings.Repeat("../d/", 750)
	for i := range 80 {
		if err := os.Symlink(to, filepath.Join(jvm, strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	s := Root{Layers: []string{dir}}.Look()
	if len(s.Stores) != 0 {
		t.Errorf("stores: %q", s.Stores)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}
