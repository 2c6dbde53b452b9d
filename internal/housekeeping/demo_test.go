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

// What differs from run to run in what the README tells of the gate.
var (
	placeholder = regexp.MustCompile(`^ghp_\w{36}$`)
	signedUpTo  = regexp.MustCompile(`^(signed with )[0-9a-f]{64} up to record \d+$|^(ok: )\d+( records)(?:, the last \d+ not signed yet)?$`)
)

// TestReadmeTellsOfTheGate does what the README's section about the gate says, and
// looks for each line that it prints there.
func TestReadmeTellsOfTheGate(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the gate runs on Linux")
	}
	testneeds.Host(t, testneeds.UserNS)
	testneeds.Tool(t, "curl")
	_, story, _ := strings.Cut(document(t, "README.md"), "\n## The gate\n")
	_, story, _ = strings.Cut(story, "```console\n")
	story, _, ok := strings.Cut(story, "```")
	if !ok || strings.Count(story, "\n$ ") < 4 {
		t.Fatalf("the README does not tell of the gate: %q", story)
	}
	const value = "ghp_0123456789abcdefghij0123456789abcdef"
	alike := func(text string) string {
		var lines []string
		for line := range strings.Lines(text) {
			line = placeholder.ReplaceAllString(strings.TrimSpace(line), "PLACEHOLDER")
			lines = append(lines, signedUpTo.ReplaceAllString(line, "$1$2N$3"))
		}
		return strings.Join(lines, "\n")
	}
	project := t.TempDir()
	env := append(os.Environ(), "BAILEY_HOME="+t.TempDir(), "GITHUB_TOKEN="+value,
		"PATH="+filepath.Dir(built(t))+":"+os.Getenv("PATH"))
	for _, part := range strings.Split("\n"+story, "\n$ ")[1:] {
		command, want, _ := strings.Cut(part, "\n")
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir, cmd.Env = project, env
		out, _ := cmd.CombinedOutput() // denials have exit codes of their own
		if strings.Contains(string(out), value) {
			t.Errorf("%s shows the value:\n%s", command, out)
		}
		if got := alike(string(out)); got != alike(want) {
			t.Errorf("%s prints\n%s\nand in the README\n%s", command, got, alike(want))
		}
	}
}
