//go:build linux

package work

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// level is one isolation level as somebody asks for it.
type level struct {
	name  string
	flags []string
}

var levels = []level{{"process", nil}, {"container", []string{"--template", "host"}}}

// run gives a `bailey run` command line at the level.
func (l level) run(flags []string, command ...string) []string {
	args := append([]string{"run"}, l.flags...)
	return append(append(append(args, flags...), "--"), command...)
}

// each runs f at every level as every person, in a yard of its own.
func each(t *testing.T, f func(t *testing.T, y *rig.Yard, l level)) {
	t.Helper()
	for _, who := range rig.People() {
		for _, l := range levels {
			t.Run(who.Name+"/"+l.name, func(t *testing.T) { f(t, rig.New(t, who), l) })
		}
	}
}

// native runs a program on the host, where it has to succeed.
func native(t *testing.T, y *rig.Yard, name string, args ...string) string {
	t.Helper()
	r := y.Finish(y.Native(name, args...))
	if r.Code != 0 {
		t.Fatalf("on the host, %s %q: %v", name, args, r)
	}
	return r.Stdout
}

// script writes a shell script into the workspace and gives its path.
func script(y *rig.Yard, name, text string) string {
	y.Write(name, "set -eu\n"+text, 0o644)
	return filepath.Join(y.Work, name)
}

// golang gives what the Go tool says about itself.
func golang(t *testing.T, variable string) string {
	t.Helper()
	out, err := exec.Command("go", "env", variable).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out[:len(out)-1])
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
