package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/cli/command"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// runs makes a data folder for the command line, and gives what makes a run in
// it that has ended and has changed the files a and b of its workspace.
func runs(t *testing.T) (make func() (id, ws string)) {
	t.Helper()
	base := t.TempDir()
	t.Setenv(folder.EnvHome, filepath.Join(base, "data"))
	f, err := folder.Open()
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	n := 0
	return func() (string, string) {
		t.Helper()
		n++
		ws := filepath.Join(base, "ws"+string(rune('0'+n)))
		write := func(dir, content string) {
			for _, name := range []string{"a", "b"} {
				if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(ws, "base\n")
		plan, err := workspace.New(ws, workspace.Options{DataFolder: f.Path(), ForceCopy: true})
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.Create(folder.Record{Command: []string{"act"}, Roots: plan.Roots})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := plan.Prepare(context.Background(), r.Dir()); err != nil {
			t.Fatal(err)
		}
		write(workspace.Tree(r.Dir(), r.Record.Roots[0]), "sandbox\n")
		r.Record.State = folder.StateKept
		r.Record.Started = started.Add(time.Duration(n) * time.Hour)
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
		return r.ID(), ws
	}
}

func call(args ...string) (code int, said string) {
	var out bytes.Buffer
	code = dispatch(args, &out, &out)
	return code, out.String()
}

// expect calls bailey and wants an exit code and words in what it says.
func expect(t *testing.T, code int, words string, args ...string) string {
	t.Helper()
	got, said := call(args...)
	if got != code || !strings.Contains(said, words) {
		t.Fatalf("bailey %q: %d, want %d and %q in: %s", args, got, code, words, said)
	}
	return said
}

func content(t *testing.T, ws, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(ws, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWithoutAName(t *testing.T) {
	newRun := runs(t)
	expect(t, 0, "no runs yet", "changes", "--list")
	expect(t, 0, "no run has changes that wait", "changes")
	for _, args := range [][]string{{"apply"}, {"discard"}} {
		expect(t, bailey.ExitBailey, "no run has changes that wait", args...)
	}
	expect(t, bailey.ExitBailey, "no run is applied", "apply", "--revert")

	first, wsFirst := newRun()
	second, wsSecond := newRun()
	expect(t, 0, "2 applied\n", "apply")
	if content(t, wsSecond, "a") != "sandbox\n" || content(t, wsFirst, "a") != "base\n" {
		t.Fatal("the latest run was not the one applied")
	}
	// The latest run is applied now, and the other waits.
	third, _ := newRun()
	expect(t, 0, "discarded "+third, "discard")
	expect(t, 0, "2 applied\n", "apply")
	if content(t, wsFirst, "a") != "sandbox\n" {
		t.Fatal("the run that waited was not applied")
	}
	expect(t, bailey.ExitBailey, "no run has changes that wait", "discard")
	newRun()
	expect(t, 0, "2 taken back\n", "apply", "--revert")
	if content(t, wsSecond, "a") != "base\n" || content(t, wsFirst, "a") != "sandbox\n" {
		t.Fatal("the latest applied run was not taken back")
	}
	said := expect(t, 0, "discarded "+first, "discard", first)
	if !strings.Contains(said, "can no longer be taken back") || content(t, wsFirst, "a") != "sandbox\n" {
		t.Fatal(said)
	}
	said = expect(t, 0, "discarded "+second, "discard", second)
	if strings.Contains(said, "taken back") {
		t.Fatal(said)
	}
}

func TestPartlyApplied(t *testing.T) {
	newRun := runs(t)
	id, ws := newRun()
	expect(t, bailey.ExitBailey, `nothing that "c" matches`, "apply", "--only", "c")
	expect(t, bailey.ExitBailey, `nothing that "c" matches`, "apply", "--only", "a", "--only", "c")
	expect(t, bailey.ExitBailey, "--except takes away", "apply", "--only", "a", "--except", "a")
	expect(t, bailey.ExitBailey, `nothing that "c" matches`, "changes", "--only", "c")
	if said := expect(t, 0, id, "changes", "--list"); strings.Contains(said, "partly") {
		t.Fatal(said)
	}
	expect(t, 0, "1 applied, 1 not selected\n", "apply", "--only", "a")
	expect(t, 0, "partly applied", "changes", "--list")
	expect(t, 0, `"partly_applied":true`, "changes", "--list", "--json")
	expect(t, 0, "1 taken back\n", "apply", "--revert")
	if said := expect(t, 0, "kept", "changes", "--list"); strings.Contains(said, "partly") || content(t, ws, "a") != "base\n" {
		t.Fatal(said)
	}
	expect(t, 0, "1 applied", "apply", "--only", "b")
	expect(t, 0, "can no longer be taken back", "discard")
}

func TestConflictSaysWhatNext(t *testing.T) {
	newRun := runs(t)
	_, ws := newRun()
	if err := os.WriteFile(filepath.Join(ws, "a"), []byte("host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	said := expect(t, bailey.ExitBailey, "1 applied, 1 in conflict\n", "apply")
	if !strings.Contains(said, "--force` takes the sandbox's side") || !strings.Contains(said, "--merge` merges") {
		t.Fatal(said)
	}
	expect(t, bailey.ExitBailey, "exclude each other", "apply", "--force", "--merge")
	if content(t, ws, "a") != "host\n" {
		t.Fatal("the host's file was touched")
	}
	expect(t, 0, "1 applied, 1 already so\n", "apply", "--force")
}

func TestDiscardAll(t *testing.T) {
	newRun := runs(t)
	id, _ := newRun()
	other, _ := newRun()
	expect(t, bailey.ExitBailey, "either --all or a run", "discard", "--all", id)
	expect(t, bailey.ExitBailey, "2 names", "discard", id, other)
	expect(t, 0, other+"\n"+id, "discard", "--all")
	expect(t, 0, "no runs yet", "changes", "--list")
}

func TestAnswer(t *testing.T) {
	shown := 0
	show := func() error { shown++; return nil }
	for text, want := range map[string]fate{"a\n": fateApplied, " Apply \n": fateApplied, "d\n": fateDiscarded, "k\n": fateKept, "x\n\nd\n": fateDiscarded,
		"s\ns\na\n": fateApplied, "": fateKept, "what": fateKept, "d": fateDiscarded} {
		got, err := answer(context.Background(), strings.NewReader(text), io.Discard, show)
		if err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	if shown != 2 {
		t.Errorf("shown %d times", shown)
	}
	broken := errors.New("broken")
	if got, err := answer(context.Background(), strings.NewReader("s\na\n"), io.Discard, func() error { return broken }); got != fateKept || err != broken {
		t.Error(got, err)
	}
}

// pressed sends Ctrl-C's signal once something has been asked.
type pressed struct{}

func (pressed) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "[a]pply") {
		unix.Kill(os.Getpid(), unix.SIGINT)
	}
	return len(b), nil
}

func TestInterruptedQuestion(t *testing.T) {
	in, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin := os.Stdin
	os.Stdin = in
	t.Cleanup(func() { os.Stdin = stdin; held.Close(); in.Close() })
	got, err := ask(context.Background(), &invocation{&command.Invocation{Stderr: pressed{}}}, nil, nil)
	if got != fateKept || err != nil {
		t.Error(got, err)
	}
}
