//go:build linux

package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// timed opens an engine with a clock of the test's own, and gives what puts it
// forward and waits for all that is done then.
func timed(t *testing.T, change ...func(*Options)) (*Engine, *fakeClock, func(time.Duration)) {
	t.Helper()
	c := newFakeClock()
	e := openEngine(t, append(change, func(o *Options) { o.Clock = c })...)
	return e, c, func(d time.Duration) {
		e.dues.Wait()
		c.advance(d, e.dues.Wait)
	}
}

func stateOf(t *testing.T, e *Engine, id string) api.State {
	t.Helper()
	return sandboxOf(t, e, id).State
}

func sandboxOf(t *testing.T, e *Engine, id string) api.Sandbox {
	t.Helper()
	s, err := e.Sandbox(t.Context(), me, id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// want fails unless the sandbox is in the state.
func want(t *testing.T, e *Engine, id string, state api.State, when string) {
	t.Helper()
	if s := sandboxOf(t, e, id); s.State != state {
		t.Fatalf("%s it is %s (awake because of %v), want %s", when, s.State, s.WhyAwake, state)
	}
}

func boxOf(t *testing.T, e *Engine, id string) *box {
	t.Helper()
	b, err := e.find(t.Context(), me, id)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// with gives the least spec with changes.
func with(change func(*api.SandboxSpec)) api.SandboxSpec {
	s := process
	change(&s)
	return s
}

func minutes(n int) api.Lifetime {
	return api.Lifetime{After: api.Duration(time.Duration(n) * time.Minute)}
}

func seconds(n int) api.Lifetime {
	return api.Lifetime{After: api.Duration(time.Duration(n) * time.Second)}
}

// TestLifetimes runs what follows in one engine, one after the other.
func TestLifetimes(t *testing.T) {
	e, c, advance := timed(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *Engine, *fakeClock, func(time.Duration))
	}{
		{"Never", testNever},
		{"TimeoutKills", testTimeoutKills},
		{"LookingNeverShortens", testLookingNeverShortens},
		{"ResumeRemembersTimeout", testResumeRemembersTimeout},
		{"IdleWaitsForExec", testIdleWaitsForExec},
		{"RealExec", testRealExec},
		{"IdleWaitsForBytes", testIdleWaitsForBytes},
		{"IdleWaitsForProcessor", testIdleWaitsForProcessor},
		{"LookingIsNoActivity", testLookingIsNoActivity},
		{"IdleActions", testIdleActions},
		{"Hold", testHold},
		{"IdleNeverMeetsAUse", testIdleNeverMeetsAUse},
		{"Lease", testLease},
		{"LeasesOfTheDead", testLeasesOfTheDead},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, e, c, advance)
			for _, b := range e.list() {
				if err := e.Delete(t.Context(), me, b.id); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// testNever is T05: never is never.
func testNever(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Timeout.Never = true }))
	if s.Expires != nil || !s.Timeout.Never {
		t.Errorf("it expires at %v", s.Expires)
	}
	advance(48 * time.Hour)
	want(t, e, s.ID, api.StateRunning, "after 48 hours")
}

// testTimeoutKills: the default is an hour, and its end says what ended it.
func testTimeoutKills(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	s := create(t, e, process)
	if s.Expires == nil || !s.Expires.Equal(c.Now().Add(time.Hour)) {
		t.Errorf("it expires at %v", s.Expires)
	}
	e.execBegan(boxOf(t, e, s.ID), "x") // a timeout does not wait for what runs
	advance(time.Hour - time.Second)
	want(t, e, s.ID, api.StateRunning, "before its timeout")
	advance(time.Second)
	want(t, e, s.ID, api.StateEnded, "after its timeout")
	if end := sandboxOf(t, e, s.ID).End; end == nil || end.Reason != bailey.EndTimeout || !strings.Contains(end.Detail, "1h0m0s") {
		t.Errorf("it ended with %+v", end)
	}
}

// testLookingNeverShortens is T06: only Extend changes when it expires.
func testLookingNeverShortens(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Timeout = minutes(30) }))
	expires := *s.Expires
	for range 5 {
		advance(time.Minute)
		sh(t, e, s.ID, "true")
		if _, _, err := e.Sandboxes(t.Context(), me, api.SandboxQuery{}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Resume(t.Context(), me, s.ID); err != nil { // of one that runs
			t.Fatal(err)
		}
		if got := sandboxOf(t, e, s.ID); got.Expires == nil || !got.Expires.Equal(expires) {
			t.Fatalf("it expires at %v, not at %v any more", got.Expires, expires)
		}
	}
	got, err := e.Extend(t.Context(), me, s.ID, api.ExtendRequest{Timeout: minutes(10)})
	if err != nil || !got.Expires.Equal(c.Now().Add(10*time.Minute)) || got.Timeout != minutes(10) {
		t.Errorf("after an extend %v, %v", got.Expires, err)
	}
	if _, err := e.Extend(t.Context(), me, s.ID, api.ExtendRequest{}); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("an extend of nothing: %v", err)
	}
}

// testResumeRemembersTimeout is T07.
func testResumeRemembersTimeout(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	for _, toDisk := range []bool{false, true} {
		s := create(t, e, with(func(s *api.SandboxSpec) { s.Timeout = minutes(30) }))
		advance(20 * time.Minute)
		if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: toDisk}); err != nil {
			t.Fatal(err)
		}
		if got := sandboxOf(t, e, s.ID); got.Expires != nil {
			t.Errorf("paused, it expires at %v", got.Expires)
		}
		advance(5 * time.Hour)
		got, err := e.Resume(t.Context(), me, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Expires == nil || !got.Expires.Equal(c.Now().Add(30*time.Minute)) {
			t.Errorf("to disk %t: resumed at %v it expires at %v", toDisk, c.Now(), got.Expires)
		}
		if err := e.Delete(t.Context(), me, s.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTimeoutOverQuota is T08: more than the quota is refused with the limit in it.
func TestTimeoutOverQuota(t *testing.T) {
	e, _, _ := timed(t, func(o *Options) {
		o.Quota = func(owner string) api.Quota {
			if owner == me.Name {
				return api.Quota{MaxTimeout: api.Duration(2 * time.Hour)}
			}
			return api.Quota{}
		}
	})
	refused := func(what string, err error) {
		t.Helper()
		if bailey.CodeOf(err) != bailey.CodeQuotaExceeded || !strings.Contains(err.Error(), "max_timeout 2h0m0s") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, l := range []api.Lifetime{minutes(24 * 60), {Never: true}} {
		_, err := e.Create(t.Context(), me, with(func(s *api.SandboxSpec) { s.Timeout = l }))
		refused("create", err)
	}
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Timeout = minutes(120) }))
	_, err := e.Extend(t.Context(), me, s.ID, api.ExtendRequest{Timeout: minutes(121)})
	refused("extend", err)
	if got := sandboxOf(t, e, s.ID); !got.Expires.Equal(*s.Expires) || got.Timeout != minutes(120) {
		t.Errorf("a refused extend changed it to %v", got.Expires)
	}
}

// testIdleWaitsForExec is T09 and T26: what runs is not interrupted, however quiet it
// is, and idleness counts from its end.
func testIdleWaitsForExec(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Idle = seconds(60) }))
	b := boxOf(t, e, s.ID)
	e.execBegan(b, "long")
	advance(180 * time.Second)
	want(t, e, s.ID, api.StateRunning, "while an exec runs")
	if got := sandboxOf(t, e, s.ID); !slices.Equal(got.WhyAwake, []string{"exec:long"}) || got.IdleSince != nil {
		t.Errorf("it is awake because of %v, idle since %v", got.WhyAwake, got.IdleSince)
	}
	e.execEnded(b, "long")
	if got := sandboxOf(t, e, s.ID); len(got.WhyAwake) != 0 || got.IdleSince == nil {
		t.Errorf("after its end it is awake because of %v, idle since %v", got.WhyAwake, got.IdleSince)
	}
	advance(59 * time.Second)
	want(t, e, s.ID, api.StateRunning, "59s after the exec")
	advance(time.Second)
	want(t, e, s.ID, api.StatePaused, "60s after the exec")
	sh(t, e, s.ID, "true") // wakes it
	want(t, e, s.ID, api.StateRunning, "used again")
	advance(60 * time.Second)
	want(t, e, s.ID, api.StatePaused, "60s after that")
}

// testRealExec is T09 and T26 with a command that runs: it keeps its sandbox awake for
// as long as it does, and the timeout that ends it is the end it has.
func testRealExec(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Idle, s.Timeout = seconds(60), minutes(30) }))
	start := func(id string) {
		t.Helper()
		if _, err := e.StartExec(t.Context(), me, s.ID, api.ExecSpec{ID: id, Args: []string{"sleep", "1000"}}); err != nil {
			t.Fatal(err)
		}
	}
	start("first")
	advance(180 * time.Second)
	if got := sandboxOf(t, e, s.ID); got.State != api.StateRunning || !slices.Equal(got.WhyAwake, []string{"exec:first"}) {
		t.Fatalf("it is %s, awake because of %v", got.State, got.WhyAwake)
	}
	if err := e.SignalExec(t.Context(), me, s.ID, "first", "SIGKILL"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.WaitExec(t.Context(), me, s.ID, "first"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "its end is known", func() bool { return len(sandboxOf(t, e, s.ID).WhyAwake) == 0 })
	advance(60 * time.Second)
	want(t, e, s.ID, api.StatePaused, "a minute after its command")
	start("second") // wakes it, and the timeout counts anew
	followed := make(chan error, 1)
	go func() {
		var last api.OutputEvent
		err := e.Output(context.Background(), me, s.ID, "second", nil, true, func(ev api.OutputEvent) error {
			last = ev
			return nil
		})
		if err == nil && last.Exec == nil {
			err = errors.New("it was told no end")
		}
		followed <- err
	}()
	advance(30 * time.Minute)
	want(t, e, s.ID, api.StateEnded, "after its timeout")
	x, err := e.Exec(t.Context(), me, s.ID, "second")
	if err != nil || x.End == nil || x.End.Reason != bailey.EndTimeout {
		t.Errorf("the command is %+v, ended with %+v, %v", x, x.End, err)
	}
	select {
	case err := <-followed:
		if code := bailey.CodeOf(err); err != nil && code != bailey.CodeSandboxLost && code != bailey.CodeSandboxEnded {
			t.Errorf("who followed its output: %v", err)
		}
	case <-time.After(patience):
		t.Error("who follows its output is told no end")
	}
}

// testIdleWaitsForBytes is T10: what goes out and in keeps it awake, with nobody there
// who asks for anything.
func testIdleWaitsForBytes(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Idle = seconds(60) }))
	bytes, asking := int64(0), false
	was := e.hooks.used
	e.hooks.used = func(context.Context) (map[string]moved, error) {
		return map[string]moved{s.ID: {activity: bytes, asking: asking}}, nil
	}
	defer func() { e.hooks.used = was }()
	for range 10 { // a long poll of 40 seconds
		advance(40 * time.Second)
		bytes += 100
	}
	want(t, e, s.ID, api.StateRunning, "with traffic")
	advance(4 * time.Second)
	if got := sandboxOf(t, e, s.ID); !slices.Equal(got.WhyAwake, []string{"bytes"}) {
		t.Errorf("it is awake because of %v", got.WhyAwake)
	}
	advance(50 * time.Second)
	want(t, e, s.ID, api.StateRunning, "50s after the traffic")
	asking = true // a question waits for a person, for as long as that takes
	advance(10 * time.Minute)
	if got := sandboxOf(t, e, s.ID); got.State != api.StateRunning || !slices.Equal(got.WhyAwake, []string{"question"}) {
		t.Errorf("with a question open it is %s, awake because of %v", got.State, got.WhyAwake)
	}
	asking = false
	advance(55 * time.Second)
	want(t, e, s.ID, api.StateRunning, "55s after the question")
	advance(15 * time.Second)
	want(t, e, s.ID, api.StatePaused, "a minute after the question")
}

// testIdleWaitsForProcessor: a process that nobody waits for and that works keeps its
// sandbox awake.
func testIdleWaitsForProcessor(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	testneeds.Host(t, testneeds.Cgroups)
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Idle = seconds(12) }))
	b := boxOf(t, e, s.ID)
	sh(t, e, s.ID, "while :; do :; done >/dev/null 2>&1 & echo $! > /tmp/pid")
	used := func() time.Duration {
		stats, err := b.generation().instance.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats.CPU
	}
	for range 20 { // seconds of the test's clock; of the host's as long as it takes to work
		before := used()
		eventually(t, 10*time.Second, "it works", func() bool { return used() > before+30*time.Millisecond })
		advance(time.Second)
	}
	want(t, e, s.ID, api.StateRunning, "while a process works")
	if got := sandboxOf(t, e, s.ID); !slices.Contains(got.WhyAwake, "cpu") {
		t.Errorf("it is awake because of %v", got.WhyAwake)
	}
	sh(t, e, s.ID, "kill $(cat /tmp/pid)")
	advance(13 * time.Second)
	want(t, e, s.ID, api.StatePaused, "after it")
}

// testLookingIsNoActivity is T11 and T12: a sandbox at which somebody looks every few
// seconds is paused a minute after its last work, to the second, and what it was kept
// for is told.
func testLookingIsNoActivity(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Idle = seconds(60) }))
	advance(10 * time.Second)
	sh(t, e, s.ID, "true")
	t0 := c.Now()
	for stateOf(t, e, s.ID) == api.StateRunning {
		if c.Now().Sub(t0) > 65*time.Second {
			t.Fatal("it is still running")
		}
		if _, _, err := e.Sandboxes(t.Context(), me, api.SandboxQuery{}); err != nil {
			t.Fatal(err)
		}
		advance(time.Second)
	}
	if d := c.Now().Sub(t0); d != 60*time.Second {
		t.Errorf("it was paused after %v", d)
	}
	advance(time.Hour)
	if d := e.idleBilled(boxOf(t, e, s.ID)); d != api.Duration(70*time.Second) {
		t.Errorf("idle billed are %v", time.Duration(d))
	}
}

// testIdleActions: what happens then is what was asked for.
func testIdleActions(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	for action, state := range map[api.Action]api.State{api.ActionPause: api.StatePaused, api.ActionStop: api.StateStopped, api.ActionKill: api.StateEnded} {
		s := create(t, e, with(func(s *api.SandboxSpec) { s.Idle, s.OnIdle = seconds(60), action }))
		advance(61 * time.Second)
		want(t, e, s.ID, state, "idle, to "+string(action))
		if got := sandboxOf(t, e, s.ID); state == api.StateEnded && got.End.Reason != bailey.EndIdle {
			t.Errorf("it ended with %+v", got.End)
		}
	}
}

// testHold keeps awake, against idleness only.
func testHold(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Idle, s.Timeout = seconds(60), minutes(10) }))
	for _, req := range []api.HoldRequest{{}, {For: -1}, {ID: "a b", For: 1}, {For: api.Duration(1000 * time.Hour)}} {
		if _, err := e.Hold(t.Context(), me, s.ID, req); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("hold %+v: %v", req, err)
		}
	}
	h, err := e.Hold(t.Context(), me, s.ID, api.HoldRequest{ID: "mine", Why: "thinking", For: api.Duration(5 * time.Minute)})
	if err != nil || h.ID != "mine" {
		t.Fatalf("%+v, %v", h, err)
	}
	advance(4 * time.Minute)
	want(t, e, s.ID, api.StateRunning, "held")
	if got := sandboxOf(t, e, s.ID); !slices.Equal(got.WhyAwake, []string{"hold:mine"}) {
		t.Errorf("it is awake because of %v", got.WhyAwake)
	}
	for range 2 {
		if err := e.Release(t.Context(), me, s.ID, "mine"); err != nil {
			t.Fatal(err)
		}
	}
	advance(60 * time.Second)
	want(t, e, s.ID, api.StatePaused, "a minute after the release")
	if _, err := e.Hold(t.Context(), me, s.ID, api.HoldRequest{For: api.Duration(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	want(t, e, s.ID, api.StateRunning, "held again") // woken
	advance(9 * time.Minute)
	want(t, e, s.ID, api.StateRunning, "held again, before its timeout")
	advance(time.Minute)
	want(t, e, s.ID, api.StateEnded, "after its timeout")
}

// testIdleNeverMeetsAUse: who has just begun to use a sandbox is not interrupted.
func testIdleNeverMeetsAUse(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Idle = seconds(60) }))
	u, err := e.awake(t.Context(), me, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	advance(10 * time.Minute)
	want(t, e, s.ID, api.StateRunning, "while it is used")
	u.release()
	advance(60 * time.Second)
	want(t, e, s.ID, api.StatePaused, "a minute after the use")
}

func testLease(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Lease = &api.Lease{TTL: api.Duration(30 * time.Second)} }))
	if s.Lease == nil || s.Lease.Action != api.ActionKill || !s.Lease.Until.Equal(c.Now().Add(30*time.Second)) {
		t.Errorf("its lease is %+v", s.Lease)
	}
	for range 10 {
		advance(20 * time.Second)
		if _, err := e.Renew(t.Context(), me, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	want(t, e, s.ID, api.StateRunning, "renewed")
	sh(t, e, s.ID, "true") // work is no sign of life of its owner
	advance(30 * time.Second)
	want(t, e, s.ID, api.StateEnded, "not renewed")
	if end := sandboxOf(t, e, s.ID).End; end.Reason != bailey.EndLease {
		t.Errorf("it ended with %+v", end)
	}
	// One that is paused by its lease comes back with its owner, and counts anew.
	s = create(t, e, with(func(s *api.SandboxSpec) {
		s.Lease = &api.Lease{TTL: api.Duration(30 * time.Second), Action: api.ActionPause}
	}))
	advance(time.Hour)
	want(t, e, s.ID, api.StatePaused, "not renewed")
	if _, err := e.Resume(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
	advance(29 * time.Second)
	want(t, e, s.ID, api.StateRunning, "resumed")
	plain := create(t, e, process)
	if _, err := e.Renew(t.Context(), me, plain.ID); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("renewed a lease that there is not: %v", err)
	}
}

// testLeasesOfTheDead is T72: what the killed have left is gone after their leases,
// running, paused or lost.
func testLeasesOfTheDead(t *testing.T, e *Engine, c *fakeClock, advance func(time.Duration)) {
	for i := range 12 {
		s := create(t, e, with(func(s *api.SandboxSpec) { s.Timeout.Never, s.Lease = true, &api.Lease{TTL: api.Duration(time.Minute)} }))
		if i%3 > 0 {
			if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: i%3 == 2}); err != nil {
				t.Fatal(err)
			}
		}
	}
	advance(59 * time.Second)
	if list, _, _ := e.Sandboxes(t.Context(), me, api.SandboxQuery{}); len(list) != 12 {
		t.Fatalf("%d sandboxes before their leases end", len(list))
	}
	advance(time.Second)
	if list, _, _ := e.Sandboxes(t.Context(), me, api.SandboxQuery{}); len(list) != 0 {
		t.Errorf("%d sandboxes after their leases", len(list))
	}
}

// TestLifeIsRemembered: another daemon goes on with timeouts that were asked for and
// gives owners time to renew leases that they could not.
func TestLifeIsRemembered(t *testing.T) {
	home := newHome(t)
	c := newFakeClock()
	same := func(o *Options) { o.Home, o.Clock = home, c }
	e := openEngine(t, same)
	// Without a keeper it is lost with the engine; its timeout and lease go on.
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Timeout = minutes(30) }))
	l := create(t, e, with(func(s *api.SandboxSpec) {
		s.Timeout, s.Lease = minutes(600), &api.Lease{TTL: api.Duration(time.Minute)}
	}))
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	c.advance(20*time.Minute, nil)
	e = openEngine(t, same)
	want(t, e, s.ID, api.StateLost, "with another engine")
	want(t, e, l.ID, api.StateLost, "with another engine")
	c.advance(59*time.Second, e.dues.Wait)
	want(t, e, l.ID, api.StateLost, "before its lease ends")
	c.advance(time.Second, e.dues.Wait)
	want(t, e, l.ID, api.StateEnded, "after its lease")
	c.advance(10*time.Minute, e.dues.Wait)
	want(t, e, s.ID, api.StateEnded, "after its timeout")
	if end := sandboxOf(t, e, s.ID).End; end == nil || end.Reason != bailey.EndHostLost {
		t.Errorf("it ended with %+v", end)
	}
}
