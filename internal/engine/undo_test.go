//go:build linux

package engine

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

func checkpoint(t testing.TB, e *Engine, id, name string) api.Snapshot {
	t.Helper()
	s, err := e.Checkpoint(t.Context(), me, id, name)
	if err != nil {
		t.Fatalf("checkpoint: %v", err)
	}
	return s
}

func changesOf(t testing.TB, e *Engine, id, from, to string) string {
	t.Helper()
	var list []string
	err := e.Diff(t.Context(), me, id, from, to, func(c api.Change) error {
		list = append(list, c.Op+" "+c.Path[strings.LastIndexByte(c.Path, '/')+1:])
		return nil
	})
	if err != nil {
		t.Fatalf("diff: %v", err)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func TestUndoAndDiff(t *testing.T) {
	for _, level := range snapLevels {
		t.Run(level.String(), func(t *testing.T) {
			e := openEngine(t)
			a := create(t, e, api.SandboxSpec{Isolation: level})
			sh(t, e, a.ID, "mkdir ~/w; echo 1 >~/w/f")
			one := checkpoint(t, e, a.ID, "one")
			sh(t, e, a.ID, "echo 22 >~/w/f; echo new >~/w/g")
			two := checkpoint(t, e, a.ID, "two")
			sh(t, e, a.ID, "rm ~/w/f; chmod 600 ~/w/g")
			for _, c := range []struct{ from, to, want string }{
				{"one", "two", "added g, changed f"},
				{"two", "", "deleted f, mode g"},
				{"two", "one", "changed f, deleted g"},
				{two.ID, two.ID, ""},
			} {
				if got := changesOf(t, e, a.ID, c.from, c.to); got != c.want {
					t.Errorf("from %q to %q: %s, want %s", c.from, c.to, got, c.want)
				}
			}
			undo := func(req api.UndoRequest) api.Receipt {
				t.Helper()
				r, err := e.Undo(t.Context(), me, a.ID, req)
				if err != nil {
					t.Fatalf("undo: %v", err)
				}
				return r
			}
			if r := undo(api.UndoRequest{}); r.Snapshot != two.ID || len(r.Notes) == 0 {
				t.Errorf("the receipt is %+v", r)
			}
			if got := sh(t, e, a.ID, "cat ~/w/*"); got != "22\nnew" {
				t.Errorf("undone it has %q", got)
			}
			if got := changesOf(t, e, a.ID, "two", ""); got != "" {
				t.Errorf("undone it differs: %s", got)
			}
			// Nothing has happened since, so that it goes one further.
			if r := undo(api.UndoRequest{}); r.Snapshot != one.ID {
				t.Errorf("undone again it is %s", r.Snapshot)
			}
			if got := sh(t, e, a.ID, "cat ~/w/*"); got != "1" {
				t.Errorf("undone again it has %q", got)
			}
			sh(t, e, a.ID, "echo 3 >~/w/h")
			checkpoint(t, e, a.ID, "three")
			sh(t, e, a.ID, "echo 4 >~/w/h")
			undo(api.UndoRequest{Steps: 2})
			if got := sh(t, e, a.ID, "ls ~/w"); got != "f" {
				t.Errorf("two steps back it has %q", got)
			}
			undo(api.UndoRequest{To: "two"})
			if got := sh(t, e, a.ID, "ls ~/w"); got != "f\ng" {
				t.Errorf("at two it has %q", got)
			}
			_, err := e.Undo(t.Context(), me, a.ID, api.UndoRequest{Steps: 99})
			wantCode(t, err, bailey.CodeNotFound)
			b := create(t, e, process)
			_, err = e.Undo(t.Context(), me, b.ID, api.UndoRequest{To: "two"})
			wantCode(t, err, bailey.CodeUsage, "another")
		})
	}
}

// Files are not taken back under live processes, unless they are to be killed.
func TestUndoUnderProcesses(t *testing.T) {
	e := openEngine(t)
	a := create(t, e, process)
	checkpoint(t, e, a.ID, "one")
	sh(t, e, a.ID, "echo x >~/f; sleep 1000 </dev/null >/dev/null 2>&1 &")
	_, err := e.Undo(t.Context(), me, a.ID, api.UndoRequest{})
	wantCode(t, err, bailey.CodeBusy)
	if got := sh(t, e, a.ID, "cat ~/f"); got != "x" {
		t.Errorf("refused, it has %q", got)
	}
	if _, err := e.Undo(t.Context(), me, a.ID, api.UndoRequest{Kill: true}); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, e, a.ID, "ls ~ | grep -v ^go$; ps -e 2>/dev/null | grep -c sleep; true"); got != "0" && got != "" {
		t.Errorf("undone it has %q", got)
	}
}

func TestBisect(t *testing.T) {
	e := openEngine(t)
	a := create(t, e, process)
	checkpoint(t, e, a.ID, "good")
	run := func(id, script string) {
		t.Helper()
		if _, err := e.StartExec(t.Context(), me, a.ID, api.ExecSpec{ID: id, Args: []string{script}, Shell: true, Checkpoint: true}); err != nil {
			t.Fatal(err)
		}
		if x, err := e.WaitExec(t.Context(), me, a.ID, id); err != nil || x.ExitCode == nil || *x.ExitCode != 0 {
			t.Fatalf("%+v %v", x, err)
		}
	}
	run("a", "echo a >~/a")
	run("b", "echo b >~/b")
	run("guilty", "echo broken >~/state")
	run("c", "echo c >~/c")
	run("d", "echo d >~/d")
	test := []string{"sh", "-c", "! grep -q broken ~/state"}
	r, err := e.Bisect(t.Context(), me, a.ID, api.BisectRequest{Good: "good", Args: test})
	if err != nil {
		t.Fatal(err)
	}
	if r.Exec != "guilty" || len(r.Tried) > 5 {
		t.Errorf("found %+v", r)
	}
	if got := sh(t, e, a.ID, "ls ~ | grep -v ^go$"); got != "a\nb\nc\nd\nstate" {
		t.Errorf("the sandbox has %q", got)
	}
	_, err = e.Bisect(t.Context(), me, a.ID, api.BisectRequest{Good: "good", Args: []string{"true"}})
	wantCode(t, err, bailey.CodeConflict, "succeeds")
	_, err = e.Bisect(t.Context(), me, a.ID, api.BisectRequest{Good: "good", Args: []string{"no-such-program"}})
	if err == nil {
		t.Error("a command that is not there is not told")
	}
	list, _, err := e.Sandboxes(t.Context(), me, api.SandboxQuery{})
	if err != nil || len(list) != 1 {
		t.Errorf("%d sandboxes are left, %v", len(list), err)
	}
}

func TestExportAndImport(t *testing.T) {
	for _, level := range snapLevels {
		t.Run(level.String(), func(t *testing.T) {
			e := openEngine(t)
			a := create(t, e, api.SandboxSpec{Isolation: level, Labels: map[string]string{"a": "1"}, Env: map[string]string{"COLOUR": "blue"}})
			sh(t, e, a.ID, "mkdir -p ~/d; echo one >~/d/f; ln ~/d/f ~/d/g; ln -s f ~/d/l; chmod 700 ~/d")
			snap(t, e, a.ID, api.SnapshotSpec{})
			sh(t, e, a.ID, "echo two >>~/d/f; rm ~/d/l")
			s := hashed(t, e, snap(t, e, a.ID, api.SnapshotSpec{Labels: map[string]string{"kind": "second"}}).ID)
			var out bytes.Buffer
			if err := e.ExportSnapshot(t.Context(), me, s.ID, &out); err != nil {
				t.Fatal(err)
			}
			other := openEngine(t)
			in, err := other.ImportSnapshot(t.Context(), me, "imported", bytes.NewReader(out.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			if in.Hash != s.Hash || !in.Receipt.Verified || in.Labels["kind"] != "second" {
				t.Errorf("imported it is %+v, want the hash %s", in, s.Hash)
			}
			b := create(t, other, api.SandboxSpec{Snapshot: "imported"})
			if got := sh(t, other, b.ID, "cat ~/d/f; ls ~/d; echo $COLOUR"); got != "one\ntwo\nf\ng\nblue" {
				t.Errorf("the sandbox has %q", got)
			}
			if b.Labels["a"] != "1" {
				t.Errorf("its labels are %v", b.Labels)
			}
			// Whatever is flipped on the way is found, and leaves nothing.
			for _, at := range []int{out.Len() / 4, out.Len() / 2, out.Len() * 3 / 4, out.Len() - 1500} {
				bad := bytes.Clone(out.Bytes())
				bad[at] ^= 1
				before := len(other.layers.All())
				if _, err := other.ImportSnapshot(t.Context(), me, "", bytes.NewReader(bad)); err == nil {
					if bytes.Equal(bad[at-16:at], make([]byte, 16)) {
						continue // between entries
					}
					t.Errorf("a changed byte at %d is not found", at)
					continue
				}
				eventually(t, 1e10, "nothing is left", func() bool { return len(other.layers.All()) <= before })
			}
			_, err = other.ImportSnapshot(t.Context(), me, "", io.LimitReader(bytes.NewReader(out.Bytes()), int64(out.Len()/2)))
			if err == nil {
				t.Error("half of it is taken")
			}
			if list, _ := os.ReadDir(e.home); slices.ContainsFunc(list, func(f os.DirEntry) bool { return strings.HasPrefix(f.Name(), ".export") }) {
				t.Error("the export has left a folder")
			}
		})
	}
}

// A writer that fails ends an export.
func TestExportToNowhere(t *testing.T) {
	e := openEngine(t)
	a := create(t, e, process)
	sh(t, e, a.ID, "echo one >~/f")
	s := snap(t, e, a.ID, api.SnapshotSpec{})
	if err := e.ExportSnapshot(t.Context(), me, s.ID, brokenPipe{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
