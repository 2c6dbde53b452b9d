//go:build linux

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

func newSession(t *testing.T, e *Engine, spec api.SessionSpec) api.Session {
	t.Helper()
	spec.Sandbox.Isolation = bailey.IsolationProcess
	s, err := e.NewSession(t.Context(), me, spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func step(id string, generation int64, script string) api.ExecuteRequest {
	return api.ExecuteRequest{Name: id, Generation: generation, Exec: api.ExecSpec{ID: id, Args: []string{script}, Shell: true}}
}

// execute runs a step that must work, and gives what it printed.
func execute(t *testing.T, e *Engine, session string, req api.ExecuteRequest) string {
	t.Helper()
	r, err := e.Execute(t.Context(), me, session, req)
	if err != nil {
		t.Fatalf("%s: %v", req.Name, err)
	}
	if r.ExitCode == nil || *r.ExitCode != 0 {
		t.Fatalf("%s: %+v: %s", req.Name, r.End, r.Err)
	}
	return strings.TrimSuffix(string(r.Out), "\n")
}

func logOf(t *testing.T, e *Engine, session string) (kinds []string) {
	t.Helper()
	next := int64(1)
	err := e.SessionEvents(t.Context(), me, session, 0, false, func(ev api.SessionEvent) error {
		if ev.Seq != next {
			t.Errorf("event %d comes where %d should", ev.Seq, next)
		}
		next++
		kinds = append(kinds, ev.Kind)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

// killSandbox kills the first process of a session's sandbox, and waits until it is
// known to be lost.
func killSandbox(t *testing.T, e *Engine, session string) {
	t.Helper()
	s, err := e.SessionOf(t.Context(), me, session)
	if err != nil {
		t.Fatal(err)
	}
	b := boxOf(t, e, s.Sandbox)
	g := b.generation()
	if err := unix.Kill(g.instance.Pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-g.over:
	case <-time.After(patience):
		t.Fatal("the loss is not noticed")
	}
}

// restartedAs fails unless the error is sandbox_restarted with the generation.
func restartedAs(t *testing.T, err error, generation int64) {
	t.Helper()
	var b *bailey.Error
	if !errors.As(err, &b) || b.Code != bailey.CodeSandboxRestarted || b.Generation != generation {
		t.Fatalf("%v, want sandbox_restarted with generation %d", err, generation)
	}
}

func TestSessions(t *testing.T) {
	e := openEngine(t)
	for name, test := range map[string]func(*testing.T, *Engine){
		"Words": testSessionWords, "Execute": testExecute, "Restarted": testExecuteRestarted, "Checkpoint": testExecuteFromCheckpoint, "Deleted": testExecuteAfterDelete,
		"DiesUnderIt": testSandboxDiesUnderExecute, "CallerLeaves": testCallerLeaves, "Close": testCloseSession, "NeverBegan": testNeverBegan,
	} {
		t.Run(name, func(t *testing.T) { test(t, e) })
	}
}

func testSessionWords(t *testing.T, e *Engine) {
	spec := api.SessionSpec{IdempotencyKey: "k", Name: "words", Labels: map[string]string{"a": "1"}}
	s := newSession(t, e, spec)
	if again := newSession(t, e, spec); again.ID != s.ID {
		t.Errorf("the same key gives %s and %s", s.ID, again.ID)
	}
	changed := spec
	changed.Labels = nil
	changed.Sandbox.Isolation = bailey.IsolationProcess
	if _, err := e.NewSession(t.Context(), me, changed); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("the same key with another spec: %v", err)
	}
	for what, bad := range map[string]api.SessionSpec{
		"a name that is taken": {Name: "words"}, "no name": {Name: "a b"}, "a sandbox's key": {Sandbox: api.SandboxSpec{IdempotencyKey: "x"}},
		"an impossible sandbox": {Sandbox: api.SandboxSpec{Template: "a", Image: "b"}}, "no idle time": {Sandbox: api.SandboxSpec{Idle: api.Lifetime{After: 1}}},
	} {
		if _, err := e.NewSession(t.Context(), me, bad); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	stranger := Caller{Name: "key:other"}
	if _, err := e.SessionOf(t.Context(), stranger, s.ID); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := e.Execute(t.Context(), stranger, s.ID, step("x", 0, "true")); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("a stranger: %v", err)
	}
	if list, err := e.Sessions(t.Context(), me, map[string]string{"a": "1"}); err != nil || len(list) != 1 || list[0].ID != s.ID {
		t.Errorf("listed: %+v, %v", list, err)
	}
	if list, _ := e.Sessions(t.Context(), me, map[string]string{"a": "2"}); len(list) != 0 {
		t.Errorf("listed: %+v", list)
	}
	ev, err := e.AppendSession(t.Context(), me, "words", api.SessionEvent{Seq: 77, Data: json.RawMessage(`{"said":"x"}`)})
	if err != nil || ev.Seq != 2 || ev.Kind != "note" || ev.Time.IsZero() {
		t.Errorf("%+v, %v", ev, err)
	}
	for _, bad := range []api.SessionEvent{{Kind: "result"}, {Kind: "A"}, {Data: json.RawMessage(`{`)}, {Data: json.RawMessage(`"` + strings.Repeat("x", maxSessionData) + `"`)}} {
		if _, err := e.AppendSession(t.Context(), me, s.ID, bad); err == nil {
			t.Errorf("%.40v is taken", bad)
		}
	}
	if got := logOf(t, e, s.ID); !slices.Equal(got, []string{"created", "note"}) {
		t.Errorf("the log has %v", got)
	}
	if s, _ = e.SessionOf(t.Context(), me, s.ID[:6]); s.Events != 2 || s.State != sessionOpen || s.Sandbox != "" {
		t.Errorf("%+v", s)
	}
}

func testExecute(t *testing.T, e *Engine) {
	s := newSession(t, e, api.SessionSpec{})
	for range 3 { // asked for again it is not done again
		if out := execute(t, e, s.ID, step("one", 0, "cd; echo x >> f; wc -l < f; echo err >&2")); out != "1" {
			t.Errorf("it said %q", out)
		}
	}
	if _, err := e.Execute(t.Context(), me, s.ID, step("one", 0, "something else")); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("another command with the same id: %v", err)
	}
	in := step("two", 1, "cat; echo; cat ~/f")
	in.Input = []byte("input \x00\n")
	if out := execute(t, e, s.ID, in); out != "input \x00\n\nx" {
		t.Errorf("it said %q", out)
	}
	r, err := e.Execute(t.Context(), me, s.ID, step("three", 1, "exit 7"))
	if err != nil || r.ExitCode == nil || *r.ExitCode != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, id := range []string{"", ""} { // no id: each is one of its own
		execute(t, e, s.ID, step(id, 1, "echo y >> ~/g"))
	}
	if out := execute(t, e, s.ID, step("five", 1, "head -c 3000000 /dev/zero | tr '\\0' a; cat ~/g")); !strings.HasSuffix(out, "a"+"y\ny") || len(out) != keptOutput-1 {
		t.Errorf("%d bytes", len(out))
	}
	for what, bad := range map[string]api.ExecuteRequest{
		"a generation to come": step("g", 2, "true"), "less than none": step("g", -1, "true"), "an id": step("a b", 1, "true"),
		"a long name": {Name: strings.Repeat("x", 1000), Exec: api.ExecSpec{Args: []string{"true"}}},
		"a terminal":  {Exec: api.ExecSpec{Args: []string{"true"}, Pty: &api.Window{Rows: 1, Cols: 1}}},
		"input":       {Exec: api.ExecSpec{Args: []string{"true"}}, Input: make([]byte, maxSessionInput+1)},
	} {
		if _, err := e.Execute(t.Context(), me, s.ID, bad); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	want := []string{"created", "provisioned", "execute", "result", "execute", "result", "execute", "result", "execute", "result", "execute", "result", "execute", "result"}
	if got := logOf(t, e, s.ID); !slices.Equal(got, want) {
		t.Errorf("the log has %v", got)
	}
	got, _ := e.SessionOf(t.Context(), me, s.ID)
	box, err := e.Sandbox(t.Context(), me, got.Sandbox)
	if err != nil || got.Generation != 1 || box.Session != s.ID || len(got.Sandboxes) != 1 {
		t.Errorf("%+v, %v, of the session %q", got, err, box.Session)
	}
}

// testExecuteRestarted is T17: a sandbox that died is not gone on with in silence. It
// has no checkpoint: its own files are what it is started from.
func testExecuteRestarted(t *testing.T, e *Engine) {
	s := newSession(t, e, api.SessionSpec{})
	execute(t, e, s.ID, step("one", 0, "echo kept > ~/f; sleep 1000 >/dev/null 2>&1 &"))
	killSandbox(t, e, s.ID)
	for _, seen := range []int64{0, 1, 1} {
		_, err := e.Execute(t.Context(), me, s.ID, step("two", seen, "cat ~/f"))
		restartedAs(t, err, 2)
	}
	if out := execute(t, e, s.ID, step("one", 0, "echo kept > ~/f; sleep 1000 >/dev/null 2>&1 &")); out != "" {
		t.Errorf("what was done before said %q", out)
	}
	if out := execute(t, e, s.ID, step("two", 2, "cat ~/f")); out != "kept" {
		t.Errorf("it said %q", out)
	}
	execute(t, e, s.ID, step("three", 2, "true"))
	_, err := e.Execute(t.Context(), me, s.ID, step("four", 1, "true"))
	restartedAs(t, err, 2)
	if got, want := logOf(t, e, s.ID), []string{"created", "provisioned", "execute", "result", "lost", "provisioned", "accepted", "execute", "result", "execute", "result"}; !slices.Equal(got, want) {
		t.Errorf("the log has %v", got)
	}
}

// testExecuteFromCheckpoint: with a checkpoint a new sandbox starts from that.
func testExecuteFromCheckpoint(t *testing.T, e *Engine) {
	s := newSession(t, e, api.SessionSpec{Sandbox: api.SandboxSpec{Name: "from-checkpoint"}})
	execute(t, e, s.ID, step("one", 0, "echo one > ~/f"))
	two := step("two", 1, "echo two >> ~/f")
	two.Exec.Checkpoint = true
	r, err := e.Execute(t.Context(), me, s.ID, two)
	if bailey.CodeOf(err) == bailey.CodeNotAvailable {
		t.Skip("there are no checkpoints yet")
	}
	if err != nil || r.Checkpoint == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	before, _ := e.SessionOf(t.Context(), me, s.ID)
	if before.Checkpoint != r.Checkpoint {
		t.Fatalf("the session's checkpoint is %q and not %q", before.Checkpoint, r.Checkpoint)
	}
	for round := range int64(2) { // and once more from the same
		if round == 0 {
			killSandbox(t, e, s.ID)
		} else if err := e.Delete(t.Context(), me, "from-checkpoint"); err != nil {
			t.Fatal(err)
		}
		_, err = e.Execute(t.Context(), me, s.ID, step(fmt.Sprint("look", round), 1, "cat ~/f"))
		restartedAs(t, err, 2+round)
		if out := execute(t, e, s.ID, step(fmt.Sprint("look", round), 2+round, "cat ~/f; echo more >> ~/f")); out != "one" {
			t.Errorf("round %d: it has %q", round, out)
		}
	}
	after, _ := e.SessionOf(t.Context(), me, s.ID)
	if after.Sandbox == before.Sandbox || len(after.Sandboxes) != 3 || after.Checkpoint != before.Checkpoint {
		t.Errorf("%+v", after)
	}
	if err := e.CloseSession(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
	if list, err := e.Snapshots(t.Context(), me, "", true); err != nil || len(list) != 0 {
		t.Errorf("closed, and these are left: %+v, %v", list, err)
	}
}

// testExecuteAfterDelete: one that somebody has deleted is provisioned as the first.
func testExecuteAfterDelete(t *testing.T, e *Engine) {
	s := newSession(t, e, api.SessionSpec{Sandbox: api.SandboxSpec{Name: "deleted"}})
	execute(t, e, s.ID, step("one", 0, "echo x > ~/f"))
	if err := e.Delete(t.Context(), me, "deleted"); err != nil {
		t.Fatal(err)
	}
	_, err := e.Execute(t.Context(), me, s.ID, step("two", 1, "ls ~/f"))
	restartedAs(t, err, 2)
	if r, err := e.Execute(t.Context(), me, s.ID, step("two", 2, "ls ~/f")); err != nil || *r.ExitCode == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// testSandboxDiesUnderExecute: what ran then has a typed outcome, which is kept.
func testSandboxDiesUnderExecute(t *testing.T, e *Engine) {
	s := newSession(t, e, api.SessionSpec{})
	execute(t, e, s.ID, step("one", 0, "true"))
	done := make(chan error, 1)
	go func() {
		r, err := e.Execute(context.Background(), me, s.ID, step("long", 1, "echo before; sleep 1000"))
		if err != nil && string(r.Out) != "before\n" {
			err = fmt.Errorf("%w, and it said %q", err, r.Out)
			t.Error(err)
		}
		done <- err
	}()
	now, _ := e.SessionOf(t.Context(), me, s.ID)
	eventually(t, 20*time.Second, "it runs and has said something", func() bool {
		x, err := e.Exec(t.Context(), me, now.Sandbox, "long")
		return err == nil && x.Stdout.To > 0
	})
	killSandbox(t, e, s.ID)
	if err := <-done; bailey.CodeOf(err) != bailey.CodeSandboxLost {
		t.Errorf("it ended with %v", err)
	}
	r, err := e.Execute(t.Context(), me, s.ID, step("long", 1, "echo before; sleep 1000"))
	if bailey.CodeOf(err) != bailey.CodeSandboxLost || string(r.Out) != "before\n" || r.End == nil || r.End.Reason != bailey.EndHostLost {
		t.Errorf("asked again: %+v, %v", r, err)
	}
	_, err = e.Execute(t.Context(), me, s.ID, step("next", 1, "true"))
	restartedAs(t, err, 2)
}

// testCallerLeaves: what was begun goes on, and tells the same to who comes back.
func testCallerLeaves(t *testing.T, e *Engine) {
	s := newSession(t, e, api.SessionSpec{})
	execute(t, e, s.ID, step("one", 0, "mkfifo /tmp/go"))
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	req := step("long", 1, "read x < /tmp/go; echo got $x")
	go func() {
		_, err := e.Execute(ctx, me, s.ID, req)
		left <- err
	}()
	eventually(t, 20*time.Second, "it is logged", func() bool { return strings.Count(strings.Join(logOf(t, e, s.ID), " "), "execute") == 2 })
	cancel()
	if err := <-left; bailey.CodeOf(err) != bailey.CodeBusy {
		t.Errorf("who left is told %v", err)
	}
	execute(t, e, s.ID, step("go", 1, "echo on > /tmp/go"))
	if out := execute(t, e, s.ID, req); out != "got on" {
		t.Errorf("who comes back is told %q", out)
	}
}

// testNeverBegan: a step that could not be begun is in the log, and may be tried again.
func testNeverBegan(t *testing.T, e *Engine) {
	s := newSession(t, e, api.SessionSpec{})
	bad := step("one", 0, "true")
	bad.Exec.Env = map[string]string{"=": ""}
	if _, err := e.Execute(t.Context(), me, s.ID, bad); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Fatalf("%v", err)
	}
	execute(t, e, s.ID, step("one", 0, "true"))
	if got, want := logOf(t, e, s.ID), []string{"created", "provisioned", "execute", "failed", "execute", "result"}; !slices.Equal(got, want) {
		t.Errorf("the log has %v", got)
	}
}

func testCloseSession(t *testing.T, e *Engine) {
	s := newSession(t, e, api.SessionSpec{Name: "closing"})
	execute(t, e, s.ID, step("one", 0, "true"))
	box, _ := e.SessionOf(t.Context(), me, s.ID)
	var kinds []string
	followed := make(chan error, 1)
	go func() {
		followed <- e.SessionEvents(context.Background(), me, s.ID, 2, true, func(ev api.SessionEvent) error {
			kinds = append(kinds, ev.Kind)
			return nil
		})
	}()
	for range 2 {
		if err := e.CloseSession(t.Context(), me, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-followed; err != nil || !slices.Equal(kinds, []string{"provisioned", "execute", "result", "closed"}) {
		t.Errorf("followed: %v, %v", kinds, err)
	}
	if got := stateOf(t, e, box.Sandbox); got != api.StateEnded {
		t.Errorf("its sandbox is %s", got)
	}
	if _, err := e.Execute(t.Context(), me, s.ID, step("two", 1, "true")); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("execute: %v", err)
	}
	if _, err := e.AppendSession(t.Context(), me, s.ID, api.SessionEvent{}); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("append: %v", err)
	}
	if out := execute(t, e, s.ID, step("one", 0, "true")); out != "" { // what was done is told still
		t.Errorf("it said %q", out)
	}
	newSession(t, e, api.SessionSpec{Name: "closing"}) // the name is free
}

func init() {
	ops["session"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		a.Session, err = e.NewSession(ctx, me, api.SessionSpec{IdempotencyKey: o.ID, Name: o.Ref, Sandbox: o.Spec})
		return a, err
	}
	ops["execute"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		a.Result, err = e.Execute(ctx, me, o.Ref, o.Execute)
		return a, err
	}
	ops["close"] = func(ctx context.Context, e *Engine, o order) (answer, error) {
		return answer{}, e.CloseSession(ctx, me, o.Ref)
	}
	ops["log"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		err = e.SessionEvents(ctx, me, o.Ref, 0, false, func(ev api.SessionEvent) error {
			a.Log = append(a.Log, ev)
			return nil
		})
		return a, err
	}
}

// TestSessionOutlivesTheDaemon kills the engine at each step of a session's life: a
// client that repeats what was not answered finds each step done once.
func TestSessionOutlivesTheDaemon(t *testing.T) {
	d := startDaemon(t)
	run := func(n int) {
		name := fmt.Sprint("s", n)
		repeat := func(o order) answer {
			t.Helper()
			for range 3 {
				a, err := d.tell(o)
				if err == errDied || a.Code == bailey.CodeDaemonUnavailable {
					continue
				}
				if err != nil || a.Err != "" {
					t.Fatalf("killed before step %d, %s %s: %v %s", n, o.Op, o.Execute.Name, err, a.Err)
				}
				return a
			}
			t.Fatalf("killed before step %d: it dies again and again at %s", n, o.Op)
			return answer{}
		}
		repeat(order{Op: "session", Ref: name, ID: name, Spec: process})
		for i := range 2 {
			id := fmt.Sprint("step", i)
			req := step(id, 0, "cd; echo "+id+" >> f; cat; cat f")
			req.Input = []byte("in\n")
			a := repeat(order{Op: "execute", Ref: name, Execute: req})
			want := "in\nstep0\n"
			if i == 1 {
				want += "step1\n"
			}
			if string(a.Result.Out) != want {
				t.Fatalf("killed before step %d: %s said %q, want %q", n, id, a.Result.Out, want)
			}
		}
		var kinds []string
		for _, ev := range repeat(order{Op: "log", Ref: name}).Log {
			kinds = append(kinds, ev.Kind)
		}
		if want := []string{"created", "provisioned", "execute", "result", "execute", "result"}; !slices.Equal(kinds, want) {
			t.Fatalf("killed before step %d: the log has %v", n, kinds)
		}
		for range 2 {
			a, err := d.tell(order{Op: "close", Ref: name})
			if err == nil && (a.Err == "" || a.Code == bailey.CodeNotFound) { // closed before, its name is free
				break
			}
		}
		eventually(t, 20*time.Second, "its sandbox is gone", func() bool { return len(d.do(order{Op: "list"}).Sandboxes) == 0 })
	}
	d.killAt(0)
	run(0)
	steps := d.steps()
	t.Logf("%d steps: %s", len(steps), strings.Join(steps, ", "))
	for n := 1; n <= len(steps); n++ {
		if (raced || testing.Short()) && n%5 != 1 { // the other passes take each
			continue
		}
		if n%3 == 0 { // the keeper waits longer each time before it starts one that died
			d.end(unix.SIGTERM)
			d.start()
		}
		d.killAt(n)
		run(n)
	}
	d.clean()
}

// TestSessionFromAfar: what a session's sandbox is made of is looked at with the
// rights of whoever made the session.
func TestSessionFromAfar(t *testing.T) {
	e := openEngine(t)
	away := Caller{Name: "key:a"}
	for name, spec := range map[string]api.SandboxSpec{
		"image":  {Image: "/"},
		"policy": {Isolation: bailey.IsolationProcess, Policy: json.RawMessage(`"version: 1\nmounts:\n  - source: /tmp\n    target: /x\n"`)},
	} {
		s, err := e.NewSession(t.Context(), away, api.SessionSpec{Sandbox: spec})
		if err == nil {
			_, err = e.Execute(t.Context(), away, s.ID, step("a", 0, "true"))
		}
		if want := map[string]bailey.Code{"image": bailey.CodeUsage, "policy": bailey.CodeForbidden}[name]; bailey.CodeOf(err) != want {
			t.Errorf("%s: a caller from elsewhere has a folder of the host: %v", name, err)
		}
	}
	list, _, err := e.Sandboxes(t.Context(), Caller{Admin: true}, api.SandboxQuery{})
	if err != nil || len(list) > 0 {
		t.Errorf("left: %+v %v", list, err)
	}
}
