package housekeeping

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// What differs from run to run: ids, and the folder that mktemp makes.
var (
	runID     = regexp.MustCompile("((?:^discarded|^bailey: kept as|`bailey (?:changes|apply|discard)) )[a-z0-9]{10}")
	tempPlace = regexp.MustCompile(`'/[^']*/bailey-demo-\w+`)
)

func settled(line string) string {
	line = strings.TrimRight(line, " \n")
	return tempPlace.ReplaceAllString(runID.ReplaceAllString(line, "${1}ID"), "'PLACE")
}

// TestReadmeTellsWhatHappens runs the demo, and looks for each line of the
// README's story in what it prints, in that order.
func TestReadmeTellsWhatHappens(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the demo runs on Linux")
	}
	testneeds.Host(t, testneeds.UserNS)
	_, story, _ := strings.Cut(document(t, "README.md"), "```text\n")
	story, _, ok := strings.Cut(story, "```")
	if !ok || strings.Count(story, "\n") < 10 {
		t.Fatalf("the README tells no story: %q", story)
	}
	cmd := exec.Command("./scripts/demo")
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the demo: %v\n%s", err, out)
	}
	rest := strings.Split(string(out), "\n")
	for line := range strings.Lines(story) {
		want := settled(line)
		found := false
		for len(rest) > 0 && !found {
			found = settled(rest[0]) == want
			rest = rest[1:]
		}
		if !found {
			t.Fatalf("the demo does not print %q where the README has it:\n%s", want, out)
		}
	}
	left, err := filepath.Glob(filepath.Join(cmd.Env[len(cmd.Env)-1][len("TMPDIR="):], "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the demo leaves %v (%v)", left, err)
	}
}
