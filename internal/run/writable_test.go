package run

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What git runs is covered in the workspace's .git, and in the git folder of a
// worktree, which is a root of its own.
func TestGuardedNames(t *testing.T) {
	for index, prefix := range []string{".git", "."} {
		root := t.TempDir()
		git := filepath.Join(root, prefix)
		if err := os.MkdirAll(filepath.Join(git, "hooks"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(git, "config"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range (&builder{}).guarded(index, root) {
			if !p.ReadOnly || p.Source != p.Target {
				t.Errorf("%+v", p)
			}
			got = append(got, p.Target)
		}
		if want := []string{filepath.Join(git, "hooks"), filepath.Join(git, "config")}; !slices.Equal(got, want) {
			t.Errorf("root %d: %q, want %q", index, got, want)
		}
	}
}
