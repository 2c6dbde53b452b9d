package layers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMemoryIsBounded: what a sandbox leaves cannot make whoever walks it remember
// names without end.
func TestMemoryIsBounded(t *testing.T) {
	old := [2]int{maxFolder, maxLinked}
	maxFolder, maxLinked = 50, 20
	defer func() { maxFolder, maxLinked = old[0], old[1] }()
	s := open(t, tempDir(t))
	for name, c := range map[string]struct {
		files, linked int
		why           string
	}{
		"few": {50, 0, ""}, "many": {51, 0, "more than 50 entries"}, "links": {2, 20, ""}, "manylinks": {2, 21, "more than 20 files"},
	} {
		upper := tempDir(t)
		must(t, os.Mkdir(filepath.Join(upper, "d"), 0o755))
		for i := range c.files {
			must(t, os.WriteFile(filepath.Join(upper, "d", fmt.Sprint(i)), nil, 0o644))
		}
		for i := range c.linked {
			must(t, os.MkdirAll(filepath.Join(upper, fmt.Sprint("l", i)), 0o755))
			must(t, os.WriteFile(filepath.Join(upper, fmt.Sprint("l", i), "a"), nil, 0o644))
			must(t, os.Link(filepath.Join(upper, fmt.Sprint("l", i), "a"), filepath.Join(upper, fmt.Sprint("l", i), "b")))
		}
		_, err := s.Seal(t.Context(), name, "", upper, IDs{})
		must(t, err) // which looks at nothing
		_, err = s.Hash(t.Context(), name)
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Together the layers of a folder have no more either.
	parent := ""
	for _, id := range []string{"low", "high"} {
		upper := tempDir(t)
		must(t, os.Mkdir(filepath.Join(upper, "d"), 0o755))
		for i := range 40 {
			must(t, os.WriteFile(filepath.Join(upper, "d", id+fmt.Sprint(i)), nil, 0o644))
		}
		_, err := s.Seal(t.Context(), id, parent, upper, IDs{})
		must(t, err)
		parent = id
	}
	if _, err := s.Flatten(t.Context(), "high", "flat"); err == nil || !strings.Contains(err.Error(), "more than 50 entries") {
		t.Errorf("two layers: %v", err)
	}
}
