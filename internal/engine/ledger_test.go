//go:build linux

package engine

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/audit"
)

// recorded gives the audit log's records of a sandbox in a few words.
func recorded(t *testing.T, home, id string) (list []string) {
	t.Helper()
	r, err := audit.OpenReader(filepath.Join(home, "audit"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		line, err := r.Next()
		if err == io.EOF {
			return list
		}
		var rec *audit.Record
		if err == nil {
			rec, err = audit.Parse(line)
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec.Sandbox == id {
			list = append(list, rec.Kind+" "+rec.Reason)
		}
	}
}

// TestWhatIsDoneIsAudited: the log has the life of a sandbox, its commands and the
// files that were put there, in order and once.
func TestWhatIsDoneIsAudited(t *testing.T) {
	e := openEngine(t)
	s := create(t, e, api.SandboxSpec{})
	x, err := e.StartExec(t.Context(), me, s.ID, api.ExecSpec{ID: "one", Args: []string{"true"}})
	if err == nil {
		_, err = e.WaitExec(t.Context(), me, s.ID, x.ID)
	}
	if err == nil {
		_, err = e.WriteFile(t.Context(), me, s.ID, "f", 0, strings.NewReader("text"))
	}
	if err == nil {
		_, err = e.Pause(t.Context(), me, s.ID, api.PauseRequest{})
	}
	if err == nil {
		_, err = e.Resume(t.Context(), me, s.ID)
	}
	if err == nil {
		err = e.Delete(t.Context(), me, s.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "lifecycle created, exec started, exec ended, file write, end , lifecycle paused, lifecycle resumed, lifecycle ended"
	if got := strings.Join(recorded(t, e.opt.Home, s.ID), ", "); got != want {
		t.Errorf("recorded %s\nand not %s", got, want)
	}
}
