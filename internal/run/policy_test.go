package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

// The codes are those of bailey policy check.
func TestPolicyThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int64{"file": 10, "long": maxPolicy + 1} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bailey.Code{"no": bailey.CodeNotFound, "": bailey.CodeUsage, "file/no": bailey.CodeUsage, "long": bailey.CodePolicyInvalid} {
		if _, err := ReadPolicy(filepath.Join(dir, name)); bailey.CodeOf(err) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
	if d, err := ReadPolicy(filepath.Join(dir, "file")); err != nil || len(d.Text) != 10 {
		t.Errorf("%+v, %v", d, err)
	}
}
