package audit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// The program in docs/audit.md, which knows nothing of this package, checks a
// log, and finds a byte that was changed.
func TestFormatIsAsDocumented(t *testing.T) {
	python := testneeds.Tool(t, "python3")
	doc, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(doc), "```python\n")
	program, _, found := strings.Cut(program, "```")
	if !found {
		t.Fatal("docs/audit.md has no program")
	}
	dir := t.TempDir()
	l := open(t, dir, Options{})
	for range 5 {
		if err := l.Append(act()); err != nil {
			t.Fatal(err)
		}
	}
	segment := filepath.Join(dir, segmentName(1))
	if out, err := exec.Command(python, "-c", program, segment).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(segment, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(python, "-c", program, segment).Run(); err == nil {
		t.Error("a changed byte was not found")
	}
}
