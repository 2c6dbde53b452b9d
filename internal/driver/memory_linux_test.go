package driver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

// Memory is gone on with only where it fits, and only as it was.
func TestMemoryIsBound(t *testing.T) {
	const version = "v"
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, m *Memory, dir string)
		why    string // "" is accepted
	}{
		{"as it was", func(*testing.T, *Memory, string) {}, ""},
		{"file beside it", func(t *testing.T, _ *Memory, dir string) { write(t, dir, "other", "x") }, ""},
		{"level", func(_ *testing.T, m *Memory, _ string) { m.Level = bailey.IsolationMicroVM }, "microvm"},
		{"version", func(_ *testing.T, m *Memory, _ string) { m.Version = "w" }, "version"},
		{"host", func(_ *testing.T, m *Memory, _ string) { m.Host = "h" }, "kernel"},
		{"no files", func(_ *testing.T, m *Memory, _ string) { m.Files = nil }, "no files"},
		{"longer", func(t *testing.T, _ *Memory, dir string) { write(t, dir, "pages", "contents+") }, "9 bytes"},
		{"one bit", func(t *testing.T, _ *Memory, dir string) { write(t, dir, "pages", "bontents") }, "damaged"},
		{"gone", func(t *testing.T, _ *Memory, dir string) { remove(t, dir, "state") }, "no such file"},
		{"link", func(t *testing.T, _ *Memory, dir string) {
			remove(t, dir, "state")
			if err := os.Symlink("pages", filepath.Join(dir, "state")); err != nil {
				t.Fatal(err)
			}
		}, "no regular file"},
		{"path", func(_ *testing.T, m *Memory, _ string) { m.Files[0].Name = "../" + m.Files[0].Name }, "no name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "pages", "contents")
			write(t, dir, "state", "")
			m, err := SealMemory(Memory{ID: "s", Level: bailey.IsolationGVisor, Version: version}, dir)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			var read Memory
			if err := json.Unmarshal(text, &read); err != nil {
				t.Fatal(err)
			}
			tc.change(t, &read, dir)
			err = CheckMemory(read, dir, bailey.IsolationGVisor, version)
			switch {
			case tc.why == "":
				if err != nil {
					t.Error(err)
				}
			case bailey.CodeOf(err) != bailey.CodeRestoreIncomplete || !strings.Contains(err.Error(), tc.why):
				t.Errorf("%v", err)
			}
		})
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}
