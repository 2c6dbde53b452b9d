package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/audit"
)

// auditRun runs `bailey audit` in this process.
func auditRun(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = auditCommand(context.Background(), args, &o, &e)
	return code, o.String(), e.String()
}

// auditHome makes a data folder whose log has an exec with its end, a denial
// with a hostile path, and a life.
func auditHome(t *testing.T) (home string, log *audit.Log) {
	t.Helper()
	home = t.TempDir()
	t.Setenv("BAILEY_HOME", home)
	log, err := audit.Open(auditPath(home), audit.Options{SegmentSize: 4000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	exec := &audit.Record{Kind: audit.KindExec, Sandbox: "box", Exec: audit.NewExec("run", []string{"curl", "-H", "Authorization: hunter2hunter2"})}
	for _, r := range []*audit.Record{
		exec,
		{Kind: "http", Sandbox: "box", Decision: "deny", Reason: "no_rule", Egress: &audit.Egress{Host: "evil.test", Path: "/\x1b[2J\u202e\n"}},
		{Kind: audit.KindEnd, Sandbox: "box", Exec: &audit.Exec{End: "exit", Status: 3}},
		{Kind: audit.KindLifecycle, Sandbox: "other", Reason: "create"},
	} {
		if r.Kind == audit.KindEnd {
			r.Of = exec.Seq
		}
		if err := log.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	return home, log
}

func TestAuditShow(t *testing.T) {
	auditHome(t)
	for _, tc := range []struct {
		args string
		want []string // a part of each line
	}{
		{"show", []string{"curl (2 arguments) → exit 3", "deny evil.test", "create"}},
		{"show --denied", []string{`/\x1b[2J\u202e\n no_rule`}},
		{"show --kind end", []string{"of 1 → exit 3"}},
		{"show --sandbox other", []string{"lifecycle"}},
		{"show -n 1", []string{"lifecycle"}},
		{"show --since 2100-01-01", nil},
		{"show --since 1h --json --kind exec", []string{`"end":{"seq":3`}},
	} {
		code, out, errs := auditRun(t, strings.Fields(tc.args)...)
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if out == "" {
			lines = nil
		}
		if code != 0 || len(lines) != len(tc.want) {
			t.Errorf("%s: %d %q %s", tc.args, code, lines, errs)
			continue
		}
		for i, w := range tc.want {
			if !strings.Contains(lines[i], w) || strings.ContainsAny(lines[i], "\x1b\u202e") {
				t.Errorf("%s: %q has no %q", tc.args, lines[i], w)
			}
		}
	}
	for _, args := range []string{"", "nothing", "show x", "show --since yesterday", "show -n -1", "show --kind nope", "follow --kind nope", "verify --key ab", "verify a b"} {
		if code, _, errs := auditRun(t, strings.Fields(args)...); code != 125 || errs == "" {
			t.Errorf("%q: %d %q", args, code, errs)
		}
	}
	if _, _, errs := auditRun(t, "show", "--kind", "nope"); !strings.Contains(errs, "[usage]") || !strings.Contains(errs, strings.Join(audit.Kinds, ", ")) {
		t.Errorf("a kind that is none: %q", errs)
	}
}

// A bundle is checked without the data folder it is from.
func TestAuditExportAndVerify(t *testing.T) {
	home, log := auditHome(t)
	bundle := filepath.Join(t.TempDir(), "bundle")
	if code, out, errs := auditRun(t, "export", "-o", bundle); code != 0 || out != "" {
		t.Fatal(code, out, errs)
	}
	if code, out, _ := auditRun(t, "verify"); code != 0 || !strings.HasSuffix(out, "ok: 5 records\n") {
		t.Error(code, out)
	}
	t.Setenv("BAILEY_HOME", t.TempDir())
	if code, out, _ := auditRun(t, "verify"); code != 0 || out != "ok: 0 records\n" {
		t.Error(code, out)
	}
	code, out, errs := auditRun(t, "verify", bundle)
	if code != 0 || !strings.HasSuffix(out, "ok: 5 records\n") {
		t.Error(code, out, errs)
	}
	b, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("hunter2")) {
		t.Error("an argument is in the log")
	}
	if err := os.WriteFile(bundle, bytes.Replace(b, []byte("no_rule"), []byte("a_rule_"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	var rep struct{ Fault struct{ Seq int64 } }
	if code, out, _ = auditRun(t, "verify", bundle, "--json"); code != 1 || json.Unmarshal([]byte(out), &rep) != nil || rep.Fault.Seq != 2 {
		t.Error(code, out)
	}
	// A log that is broken is not exported, as if it were whole.
	t.Setenv("BAILEY_HOME", home)
	log.Close()
	if err := os.Remove(filepath.Join(auditPath(home), "head")); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := auditRun(t, "export"); code != 125 || !strings.Contains(errs, "[audit]") {
		t.Error(code, errs)
	}
	if err := os.RemoveAll(auditPath(home)); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := auditRun(t, "verify"); code != 1 || !strings.Contains(out, "the whole log is missing") {
		t.Error(code, out)
	}
}

// follow shows each record once, over the ends of segments, and ends when it is
// told to.
func TestAuditFollow(t *testing.T) {
	home, log := auditHome(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- auditCommand(ctx, []string{"follow", "--since", "1h", "--json"}, w, io.Discard)
		w.Close()
	}()
	const n = 300
	go func() {
		for range n {
			if err := log.Append(&audit.Record{Kind: "stream", Sandbox: "box", Egress: &audit.Egress{Host: "db.test"}}); err != nil {
				t.Error(err)
			}
		}
	}()
	streams, next := 0, int64(1)
	for lines := bufio.NewScanner(r); streams < n && lines.Scan(); next++ {
		var rec audit.Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil || rec.Seq != next {
			t.Fatalf("%d after %d: %v", rec.Seq, next-1, err)
		}
		if rec.Kind == "stream" {
			streams++
		}
	}
	stop()
	go io.Copy(io.Discard, r)
	if c := <-code; c != 0 || streams != n {
		t.Error(c, streams)
	}
	if list, _ := filepath.Glob(filepath.Join(auditPath(home), "*.log")); len(list) < 3 {
		t.Error("there was no rotation", list)
	}
}
