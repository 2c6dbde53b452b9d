//go:build linux

package work

import (
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// TestGitKnowsThePerson: a commit inside is the person's, in a project that
// does not name one, and nothing else of the person's settings comes along.
func TestGitKnowsThePerson(t *testing.T) {
	testneeds.Tool(t, "git")
	y := rig.New(t, rig.Self())
	y.Write(filepath.Join(y.Home, ".gitconfig"), "[user]\n\tname = A Person\n\temail = person@example.test\n[credential]\n\thelper = store\n", 0o644)
	native(t, y, "git", "init", "-q", "-b", "main")
	out := y.Must("run", "--discard", "--", "sh", "-euc",
		`echo x >file; git add file; git commit -qm first; git log --format='%an %ae, %cn'; git config --list | grep credential || :`)
	if out != "A Person person@example.test, A Person\n" {
		t.Errorf("inside it is %q", out)
	}
}
