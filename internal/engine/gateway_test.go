//go:build linux

package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// askName is a script that prints the address of a name, and whether another name
// is refused.
const askName = `getent hosts allowed.example.com | cut -d' ' -f1; getent hosts denied.example.com || echo refused; echo $HTTP_PROXY`

// TestWayOut: a sandbox with a policy has the gate's names and trust, and keeps
// its table of names over a stop.
func TestWayOut(t *testing.T) {
	e := openEngine(t)
	for name, spec := range atLevels {
		t.Run(name, func(t *testing.T) {
			spec.Allow = []string{"allowed.example.com:443"}
			s := create(t, e, spec)
			if s.Policy == "" || s.Egress != "transparent" {
				t.Errorf("policy %q, egress %q", s.Policy, s.Egress)
			}
			before := sh(t, e, s.ID, askName)
			if !strings.HasPrefix(before, "fdba:11e4:") || !strings.Contains(before, "\nrefused\nhttp://") {
				t.Fatalf("it said %q", before)
			}
			if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
				t.Fatal(err)
			}
			if after := sh(t, e, s.ID, askName); after != before {
				t.Errorf("after a stop: %q, and was %q", after, before)
			}
			if _, err := e.UpdatePolicy(t.Context(), me, s.ID, api.SandboxSpec{Allow: []string{"denied.example.com:443"}}); err != nil {
				t.Fatal(err)
			}
			if now := sh(t, e, s.ID, "getent hosts denied.example.com"); !strings.Contains(now, "denied.example.com") {
				t.Errorf("with another policy: %q", now)
			}
		})
	}
	s := create(t, e, process)
	if _, err := e.UpdatePolicy(t.Context(), me, s.ID, api.SandboxSpec{Allow: []string{"a.example.com:443"}}); bailey.CodeOf(err) != bailey.CodeNotAvailable {
		t.Errorf("a network for one without: %v", err)
	}
}

// TestPolicyAllOrNothing: another policy is in force as a whole or not at all: what it
// says beside what may be reached is refused, and where it cannot be written down the
// earlier one goes on.
func TestPolicyAllOrNothing(t *testing.T) {
	e := openEngine(t)
	fail := false
	e.hooks.changed = append(e.hooks.changed, func(_ context.Context, _ *sql.Tx, before, after *record) error {
		if fail && before != nil && len(after.Spec.Policy) != len(before.Spec.Policy) {
			return errors.New("it was to fail")
		}
		return nil
	})
	doc := func(more string) json.RawMessage {
		text, err := json.Marshal("version: 1\negress:\n  rules:\n    - {hosts: [allowed.example.com], ports: [443]}\n" + more)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	spec := process
	spec.Policy = doc("paths:\n  deny_read: [/srv]\n")
	s := create(t, e, spec)
	before := sh(t, e, s.ID, askName)
	for what, more := range map[string]string{
		"no path": "", "another path": "paths:\n  deny_read: [/mnt]\n", "a limit": "paths:\n  deny_read: [/srv]\nlimits:\n  pids: 7\n",
	} {
		if _, err := e.UpdatePolicy(t.Context(), me, s.ID, api.SandboxSpec{Policy: doc(more)}); bailey.CodeOf(err) != bailey.CodeNotAvailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	other := doc("    - {hosts: [denied.example.com], ports: [443]}\npaths:\n  deny_read: [/srv]\n")
	fail = true
	if _, err := e.UpdatePolicy(t.Context(), me, s.ID, api.SandboxSpec{Policy: other}); err == nil {
		t.Fatal("it did not fail")
	}
	fail = false
	if after := sh(t, e, s.ID, askName); after != before {
		t.Errorf("after failures: %q, and was %q", after, before)
	}
	if got := sandboxOf(t, e, s.ID); got.Policy != s.Policy {
		t.Errorf("its policy is told as %s, and was %s", got.Policy, s.Policy)
	}
	if _, err := e.UpdatePolicy(t.Context(), me, s.ID, api.SandboxSpec{Policy: other}); err != nil {
		t.Fatal(err)
	}
	if now := sh(t, e, s.ID, "getent hosts denied.example.com"); !strings.Contains(now, "denied.example.com") {
		t.Errorf("with another policy: %q", now)
	}
}

// TestWayOutAdopted: after the engine and its gate were killed, what the sandbox
// knows of names is true.
func TestWayOutAdopted(t *testing.T) {
	d := startDaemon(t)
	spec := process
	spec.Allow = []string{"allowed.example.com:443"}
	s := d.do(order{Op: "create", Spec: spec}).Sandbox
	before := d.do(order{Op: "sh", Ref: s.ID, ID: "a", Script: askName})
	old := d.enginePid()
	d.signal(old, unix.SIGKILL)
	eventually(t, 10*time.Second, "another engine", func() bool { p := d.enginePid(); return p != 0 && p != old })
	d.do(order{Op: "list"})
	after := d.do(order{Op: "sh", Ref: s.ID, ID: "b", Script: askName})
	if after.Out != before.Out || after.Pid != before.Pid || !strings.HasPrefix(after.Out, "fdba:11e4:") {
		t.Errorf("%+v, and was %+v", after, before)
	}
	d.do(order{Op: "delete", Ref: s.ID})
	d.clean()
}

// TestLineageForgotten: the sealed key of a lineage's certificate authority is
// destroyed with the last sandbox or snapshot of it, and no earlier.
func TestLineageForgotten(t *testing.T) {
	e := openEngine(t)
	spec := process
	spec.Allow = []string{"allowed.example.com:443"}
	one, two := create(t, e, spec), create(t, e, spec)
	there := func(id string) bool {
		_, err := os.Lstat(filepath.Join(e.home, authorities, "l-"+id+".age"))
		return err == nil
	}
	if !there(one.ID) || !there(two.ID) {
		t.Fatal("no authority was sealed: the test looks in the wrong place")
	}
	s, err := e.Snapshot(t.Context(), me, one.ID, api.SnapshotSpec{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{one.ID, two.ID} {
		if err := e.Delete(t.Context(), me, id); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 10*time.Second, "the second's authority is destroyed", func() bool { return !there(two.ID) })
	if !there(one.ID) {
		t.Error("an authority is gone of whose lineage there is a snapshot")
	}
	if err := e.DeleteSnapshot(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the first's authority is destroyed", func() bool { return !there(one.ID) })
}
