//go:build linux

package engine

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/layers"
)

func wantCode(t testing.TB, err error, code bailey.Code, words ...string) {
	t.Helper()
	if bailey.CodeOf(err) != code {
		t.Fatalf("got %v, want an error with code %s", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("%v does not name %q", err, w)
		}
	}
}

func snap(t testing.TB, e *Engine, id string, spec api.SnapshotSpec) api.Snapshot {
	t.Helper()
	s, err := e.Snapshot(t.Context(), me, id, spec)
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	return s
}

// hashed waits for a snapshot's hash.
func hashed(t testing.TB, e *Engine, id string) api.Snapshot {
	t.Helper()
	var s api.Snapshot
	eventually(t, 30*time.Second, "the hash of the snapshot "+id, func() bool {
		var err error
		if s, err = e.SnapshotOf(t.Context(), me, id); err != nil {
			t.Fatal(err)
		}
		return !s.Receipt.HashPending
	})
	if s.Hash == "" || s.Receipt.Hash != s.Hash {
		t.Fatalf("the hash is %q, the receipt's %q: %v", s.Hash, s.Receipt.Hash, s.Receipt.Notes)
	}
	return s
}

// wipe deletes a sandbox.
func wipe(t testing.TB, e *Engine, id string) {
	t.Helper()
	if err := e.Delete(t.Context(), me, id); err != nil {
		t.Fatalf("delete: %v", err)
	}
}

// snapLevels are those that sandboxes with files of their own have.
var snapLevels = []bailey.Isolation{bailey.IsolationProcess, bailey.IsolationContainer}

// What stands on a snapshot goes on when its sandbox, and it itself, are deleted
// (T79), and in the end no layer is left.
func TestSnapshotIsKeptByWhoStandsOnIt(t *testing.T) {
	for _, level := range snapLevels {
		t.Run(level.String(), func(t *testing.T) {
			e := openEngine(t)
			a := create(t, e, api.SandboxSpec{Isolation: level, Labels: map[string]string{"task": "one"}, Env: map[string]string{"COLOUR": "blue"}})
			sh(t, e, a.ID, "echo one >~/f; mkdir -p ~/d/e; ln ~/f ~/d/same; ln -s f ~/l; rm -rf ~/nothing")
			s := snap(t, e, a.ID, api.SnapshotSpec{Name: "first"})
			if s.Receipt.Method != layers.Sealed || s.Receipt.Took <= 0 || s.ID == "" {
				t.Errorf("the receipt is %+v", s.Receipt)
			}
			if got := sh(t, e, a.ID, "echo more >>~/f; cat ~/f"); got != "one\nmore" {
				t.Errorf("the sandbox goes on with %q", got)
			}
			if h := hashed(t, e, "first"); h.Receipt.Files == 0 || h.Bytes == 0 || h.Layers == 0 {
				t.Errorf("hashed it is %+v", h)
			}
			b := create(t, e, api.SandboxSpec{Snapshot: "first"})
			if !b.Receipt.Verified || b.Parent != s.ID || b.Labels["task"] != "one" || b.Lineage != a.Lineage || b.Isolation != level {
				t.Errorf("the child is %+v, its receipt %+v", b, b.Receipt)
			}
			if got := sh(t, e, b.ID, "cat ~/f ~/d/same; readlink ~/l; echo $COLOUR"); got != "one\none\nf\nblue" {
				t.Errorf("the child has %q", got)
			}
			if got, err := e.SnapshotOf(t.Context(), me, s.ID); err != nil || got.Refs != 2 {
				t.Errorf("it has %d refs, %v", got.Refs, err)
			}
			wipe(t, e, a.ID)
			if err := e.DeleteSnapshot(t.Context(), me, "first"); err != nil {
				t.Fatal(err)
			}
			if err := e.DeleteSnapshot(t.Context(), me, s.ID); err != nil {
				t.Errorf("deleted again: %v", err)
			}
			_, err := e.SnapshotOf(t.Context(), me, s.ID)
			wantCode(t, err, bailey.CodeSnapshotGone, s.ID, "deleted")
			if got := sh(t, e, b.ID, "cat ~/f"); got != "one" {
				t.Errorf("the child has %q", got)
			}
			if _, err := e.Pause(t.Context(), me, b.ID, api.PauseRequest{ToDisk: true}); err != nil {
				t.Fatal(err)
			}
			if got := sh(t, e, b.ID, "cat ~/f"); got != "one" {
				t.Errorf("started anew, the child has %q", got)
			}
			wipe(t, e, b.ID)
			eventually(t, 10*time.Second, "all layers are removed", func() bool { return len(e.layers.All()) == 0 })
		})
	}
}

// A process appends through a descriptor that it opened before: the snapshot never
// changes, the sandbox's own file does.
func TestSnapshotUnderLiveProcesses(t *testing.T) {
	for _, level := range snapLevels {
		t.Run(level.String(), func(t *testing.T) {
			e := openEngine(t)
			a := create(t, e, api.SandboxSpec{Isolation: level})
			sh(t, e, a.ID, "(while :; do echo line; sleep 0.01; done >>~/log 2>/dev/null </dev/null) & sleep 0.1")
			s := snap(t, e, a.ID, api.SnapshotSpec{})
			if s.Receipt.Method != layers.Copied && s.Receipt.Method != layers.Reflinked {
				t.Errorf("the method is %s", s.Receipt.Method)
			}
			h := hashed(t, e, s.ID)
			before := sh(t, e, a.ID, "wc -l <~/log")
			eventually(t, 10*time.Second, "the process goes on", func() bool { return sh(t, e, a.ID, "wc -l <~/log") != before })
			d, err := e.findSnapshot(t.Context(), me, s.ID)
			if err != nil {
				t.Fatal(err)
			}
			for _, root := range d.Roots {
				if _, err := e.layers.Verify(t.Context(), root.Chain, true); err != nil {
					t.Error(err)
				}
			}
			one := create(t, e, api.SandboxSpec{Snapshot: s.ID})
			two := create(t, e, api.SandboxSpec{Snapshot: s.ID})
			if x, y := sh(t, e, one.ID, "wc -l <~/log"), sh(t, e, two.ID, "wc -l <~/log"); x != y || x == "0" {
				t.Errorf("two sandboxes of one snapshot have %s and %s lines", x, y)
			}
			if again := hashed(t, e, s.ID); again.Hash != h.Hash {
				t.Errorf("the hash was %s and is %s", h.Hash, again.Hash)
			}
		})
	}
}

func TestForks(t *testing.T) {
	for _, level := range snapLevels {
		t.Run(level.String(), func(t *testing.T) {
			e := openEngine(t)
			a := create(t, e, api.SandboxSpec{Isolation: level, Name: "parent", Labels: map[string]string{"a": "1", "b": "1"}})
			sh(t, e, a.ID, "echo one >~/f; hostname >~/host; cat /etc/machine-id >~/machine 2>/dev/null; true")
			forks, err := e.Fork(t.Context(), me, a.ID, api.ForkRequest{Count: 3, Labels: map[string]string{"b": "2"}})
			if err != nil {
				t.Fatal(err)
			}
			hosts := []string{sh(t, e, a.ID, "cat ~/host ~/machine")}
			for _, f := range forks {
				if f.Labels["a"] != "1" || f.Labels["b"] != "2" || f.Lineage != a.Lineage || f.Receipt.Act != "fork" || f.Name != "" {
					t.Errorf("a fork is %+v", f)
				}
				if got := sh(t, e, f.ID, "cat ~/f; echo "+f.ID+" >~/f; cat ~/f"); got != "one\n"+f.ID {
					t.Errorf("a fork has %q", got)
				}
				hosts = append(hosts, sh(t, e, f.ID, "hostname; cat /etc/machine-id 2>/dev/null; true"))
			}
			slices.Sort(hosts)
			if len(slices.Compact(slices.Clone(hosts))) != 4 {
				t.Errorf("host names and machine ids are not all different: %q", hosts)
			}
			if got := sh(t, e, a.ID, "cat ~/f"); got != "one" {
				t.Errorf("the parent has %q", got)
			}
			eventually(t, 20*time.Second, "the fork's receipt has a hash", func() bool {
				s, err := e.Sandbox(t.Context(), me, forks[0].ID)
				return err == nil && s.Receipt != nil && s.Receipt.Hash != ""
			})
			wipe(t, e, a.ID)
			more, err := e.Fork(t.Context(), me, forks[0].ID, api.ForkRequest{Name: "again"})
			if err != nil || len(more) != 1 || more[0].Name != "again" {
				t.Fatalf("a fork of a fork: %v %v", more, err)
			}
			if got := sh(t, e, more[0].ID, "cat ~/f"); got != forks[0].ID {
				t.Errorf("a fork of a fork has %q", got)
			}
		})
	}
	e := openEngine(t)
	a := create(t, e, process)
	for _, req := range []api.ForkRequest{{Count: -1}, {Count: 101}, {Count: 2, Name: "two"}, {Name: "../x"}} {
		_, err := e.Fork(t.Context(), me, a.ID, req)
		wantCode(t, err, bailey.CodeUsage)
	}
	_, err := e.Fork(t.Context(), me, a.ID, api.ForkRequest{Memory: true})
	wantCode(t, err, bailey.CodeNotAvailable, "memory")
	_, err = e.Snapshot(t.Context(), me, a.ID, api.SnapshotSpec{Memory: true})
	wantCode(t, err, bailey.CodeNotAvailable, "memory")
}

// A paused or stopped sandbox is not woken for its snapshot (T15).
func TestSnapshotWithoutWaking(t *testing.T) {
	for _, disk := range []bool{false, true} {
		t.Run(fmt.Sprint("to disk ", disk), func(t *testing.T) {
			e := openEngine(t)
			a := create(t, e, process)
			sh(t, e, a.ID, "echo one >~/f")
			if _, err := e.Pause(t.Context(), me, a.ID, api.PauseRequest{ToDisk: disk}); err != nil {
				t.Fatal(err)
			}
			want := map[bool]api.State{false: api.StatePaused, true: api.StateStopped}[disk]
			s := snap(t, e, a.ID, api.SnapshotSpec{})
			if got, err := e.Sandbox(t.Context(), me, a.ID); err != nil || got.State != want {
				t.Fatalf("it is %s now: %v", got.State, err)
			}
			b := create(t, e, api.SandboxSpec{Snapshot: s.ID})
			if got := sh(t, e, b.ID, "cat ~/f"); got != "one" {
				t.Errorf("the child has %q", got)
			}
			if got := sh(t, e, a.ID, "cat ~/f"); got != "one" {
				t.Errorf("woken it has %q", got)
			}
		})
	}
}

// What is missing or damaged is named, and never a success (T18).
func TestDamagedSnapshot(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, dir string) (path string){
		"layer gone": func(t *testing.T, dir string) string { os.Rename(dir, dir+".away"); return dir },
		"file changed": func(t *testing.T, dir string) string {
			os.WriteFile(dir+"/f", []byte("evil"), 0o644)
			return dir + "/f"
		},
		"file gone": func(t *testing.T, dir string) string { os.Remove(dir + "/f"); return dir + "/f" },
	} {
		t.Run(name, func(t *testing.T) {
			e := openEngine(t)
			a := create(t, e, process)
			sh(t, e, a.ID, "echo one >~/f")
			s := snap(t, e, a.ID, api.SnapshotSpec{})
			hashed(t, e, s.ID)
			if _, err := e.Pause(t.Context(), me, a.ID, api.PauseRequest{ToDisk: true}); err != nil {
				t.Fatal(err)
			}
			d, err := e.findSnapshot(t.Context(), me, s.ID)
			if err != nil {
				t.Fatal(err)
			}
			var path string
			for _, root := range d.Roots {
				if l, err := e.layers.Get(root.Chain); err == nil {
					if _, err := os.Stat(l.Dir + "/f"); err == nil {
						path = harm(t, l.Dir)
					}
				}
			}
			_, err = e.Create(t.Context(), me, api.SandboxSpec{Snapshot: s.ID})
			wantCode(t, err, bailey.CodeRestoreIncomplete, path)
			_, err = e.Resume(t.Context(), me, a.ID)
			wantCode(t, err, bailey.CodeRestoreIncomplete, path)
			if got, err := e.Sandbox(t.Context(), me, a.ID); err != nil || got.State != api.StateStopped {
				t.Errorf("it is %s: %v", got.State, err)
			}
		})
	}
}

// A snapshot that has gone says which and when; a fallback is used and said (T81).
func TestSnapshotGone(t *testing.T) {
	clock := newFakeClock()
	e := openEngine(t, func(o *Options) { o.Clock = clock })
	a := create(t, e, process)
	s := snap(t, e, a.ID, api.SnapshotSpec{Name: "short", Expires: api.Lifetime{After: api.Duration(time.Minute)}})
	clock.advance(2*time.Minute, func() {})
	eventually(t, 10*time.Second, "it expires", func() bool {
		_, err := e.SnapshotOf(t.Context(), me, s.ID)
		return bailey.CodeOf(err) == bailey.CodeSnapshotGone
	})
	_, err := e.Create(t.Context(), me, api.SandboxSpec{Snapshot: s.ID})
	wantCode(t, err, bailey.CodeSnapshotGone, s.ID, s.Expires.Format(time.RFC3339))
	b := create(t, e, api.SandboxSpec{Snapshot: s.ID, Fallback: "host", Isolation: bailey.IsolationContainer})
	if len(b.Notes) == 0 || !strings.Contains(b.Notes[0], s.ID) || !strings.Contains(b.Notes[0], "host") {
		t.Errorf("the notes are %q", b.Notes)
	}
	list, err := e.Snapshots(t.Context(), me, a.ID, true)
	if err != nil || len(list) != 0 {
		t.Errorf("listed: %v %v", list, err)
	}
	snap(t, e, a.ID, api.SnapshotSpec{Name: "short"}) // the name is free again
	_, err = e.Snapshot(t.Context(), me, a.ID, api.SnapshotSpec{Name: "short"})
	wantCode(t, err, bailey.CodeConflict)
	_, err = e.SnapshotOf(t.Context(), Caller{Name: "key:other"}, "short")
	wantCode(t, err, bailey.CodeNotFound)
}
