package ledger

import (
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/audit"
)

// TestWhatIsDoneIsRecorded: with what it takes to say who did what, without
// arguments and contents, whatever bytes a sandbox's names have.
func TestWhatIsDoneIsRecorded(t *testing.T) {
	home := t.TempDir()
	l, err := Open(home)
	if err != nil {
		t.Fatal(err)
	}
	event := func(kind, data string) {
		t.Helper()
		if err := l.Event(api.Event{Kind: kind, Sandbox: "sb", Owner: "uid:7", Data: json.RawMessage(data)}, 42); err != nil {
			t.Fatal(err)
		}
	}
	event("sandbox.created", `{"state":"running","session":"ses"}`)
	if err := l.Started(Command{Sandbox: "sb", Session: "ses", ID: "x1", Args: []string{"sh", "-c", "echo hunter2"}, Level: bailey.IsolationContainer, Workdir: "/w", By: "uid:7"}); err != nil {
		t.Fatal(err)
	}
	event("exec.started", `{"id":"x1"}`) // Started has said so
	event("exec.ended", `{"id":"x1","end":{"reason":"exited","exit_code":3}}`)
	event("snapshot.created", `{"id":"snap"}`)
	event("session.created", `{}`)
	a, err := l.File("sb", "write", "/w/\xff\n"+strings.Repeat("x", 2*maxPath), "", "key:k")
	if err != nil {
		t.Fatal(err)
	}
	a.End(5, 0, "abc", nil)
	if a, err = l.Port("sb", 8080, ""); err != nil {
		t.Fatal(err)
	}
	a.End(1, 2, "", errors.New("away"))
	event("sandbox.ended", `{"why_ended":{"reason":"timeout"}}`)
	event("sandbox.failed", `{"error":{"code":"storage"}}`)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	reader, err := audit.OpenReader(filepath.Join(home, "audit"))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for {
		text, err := reader.Next()
		if err == io.EOF {
			break
		}
		var r audit.Record
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind == audit.KindCheckpoint || r.Kind == audit.KindGap {
			continue
		}
		line := r.Kind + " " + r.Reason
		if r.Exec != nil {
			line += " " + r.Exec.ID + " " + r.Exec.Program + " " + r.Exec.End
		}
		for _, name := range []string{"by", "owner", "event", "why", "end", "error", "port", "snapshot", "sha256"} {
			if v := r.Detail[name]; v != "" {
				line += " " + name + "=" + v
			}
		}
		if p := r.Detail["path"]; len(p) > maxPath+64 || strings.Contains(p, "hunter2") {
			t.Errorf("%q", p)
		}
		if r.Outcome != nil {
			line += " " + r.Outcome.Error
		}
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"lifecycle created owner=uid:7 event=42", "exec started x1 sh by=uid:7", "exec ended x1 exited owner=uid:7 event=42",
		"lifecycle snapshot.created owner=uid:7 event=42 snapshot=snap", "file write by=key:k", "end sha256=abc", "port connect port=8080", "end internal",
		"lifecycle ended owner=uid:7 event=42 end=timeout", "lifecycle failed owner=uid:7 event=42 error=storage",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("recorded\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
