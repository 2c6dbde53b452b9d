package life_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/life"
)

var t0 = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func at(s int) time.Time                   { return t0.Add(time.Duration(s) * time.Second) }
func secs(s int) api.Duration              { return api.Duration(time.Duration(s) * time.Second) }
func after(s int) api.Lifetime             { return api.Lifetime{After: secs(s)} }
func never() api.Lifetime                  { return api.Lifetime{Never: true} }
func lease(s int, a api.Action) *api.Lease { return &api.Lease{TTL: secs(s), Action: a} }

func TestFrom(t *testing.T) {
	for _, c := range []struct {
		name string
		spec api.SandboxSpec
		max  api.Duration
		want life.Settings
		code bailey.Code
		says string
	}{
		{name: "defaults", want: life.Settings{Timeout: after(3600), OnTimeout: "kill", Idle: never(), OnIdle: "pause"}},
		{name: "default under a smaller bound", max: secs(60), want: life.Settings{Timeout: after(60), OnTimeout: "kill", Idle: never(), OnIdle: "pause"}},
		{name: "T05 never", spec: api.SandboxSpec{Timeout: never()}, want: life.Settings{Timeout: never(), OnTimeout: "kill", Idle: never(), OnIdle: "pause"}},
		{name: "T08 more than the quota", spec: api.SandboxSpec{Timeout: after(86400)}, max: secs(3600), code: bailey.CodeQuotaExceeded, says: "max_timeout 1h0m0s"},
		{name: "never under a quota", spec: api.SandboxSpec{Timeout: never()}, max: secs(3600), code: bailey.CodeQuotaExceeded, says: "max_timeout 1h0m0s"},
		{name: "just the quota", spec: api.SandboxSpec{Timeout: after(3600)}, max: secs(3600), want: life.Settings{Timeout: after(3600), OnTimeout: "kill", Idle: never(), OnIdle: "pause"}},
		{name: "actions", spec: api.SandboxSpec{OnTimeout: "stop", Idle: after(60), OnIdle: "kill", Lease: lease(10, "")},
			want: life.Settings{Timeout: after(3600), OnTimeout: "stop", Idle: after(60), OnIdle: "kill", Lease: lease(10, "kill")}},
		{name: "unknown action", spec: api.SandboxSpec{OnIdle: "explode"}, code: bailey.CodeUsage, says: "explode"},
		{name: "idle too short", spec: api.SandboxSpec{Idle: api.Lifetime{After: 1}}, code: bailey.CodeUsage, says: "at least 1s"},
		{name: "lease too short", spec: api.SandboxSpec{Lease: lease(0, "")}, code: bailey.CodeUsage, says: "lease"},
		{name: "negative", spec: api.SandboxSpec{Timeout: api.Lifetime{After: -1}}, code: bailey.CodeUsage},
		{name: "both", spec: api.SandboxSpec{Timeout: api.Lifetime{After: 5, Never: true}}, code: bailey.CodeUsage},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := life.From(c.spec, c.max)
			if c.code != "" {
				if bailey.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("error %v, want code %s that says %q", err, c.code, c.says)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

// TestZeroTimeoutIsRefused is T05: on the wire 0 is no timeout, and the error names
// what is.
func TestZeroTimeoutIsRefused(t *testing.T) {
	for _, s := range []string{"0", "0s", "-1s"} {
		var l api.Lifetime
		if err := l.UnmarshalText([]byte(s)); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%s: %v", s, err)
		}
	}
	var l api.Lifetime
	if err := l.UnmarshalText([]byte("0s")); !strings.Contains(fmt.Sprintf("%+v", err), "never") {
		t.Errorf("the error does not say what to write: %v", err)
	}
}

// step is one thing that happens to a record in a table below.
type step struct {
	at int
	do func(r *life.Record, now time.Time)
}

func begin(id string) func(*life.Record, time.Time) {
	return func(r *life.Record, now time.Time) { r.Begin(id, now) }
}

func done(id string) func(*life.Record, time.Time) {
	return func(r *life.Record, now time.Time) { r.Done(id, now) }
}

func looked(cpu, bytes bool, before int) func(*life.Record, time.Time) {
	return func(r *life.Record, now time.Time) { r.Looked(cpu, bytes, at(before), now) }
}

func hold(id string, until int) func(*life.Record, time.Time) {
	return func(r *life.Record, now time.Time) { r.Hold(api.Hold{ID: id, Until: at(until)}, now) }
}

func TestNext(t *testing.T) {
	idle60 := api.SandboxSpec{Timeout: after(1800), Idle: after(60)}
	for _, c := range []struct {
		name   string
		spec   api.SandboxSpec
		state  api.State // default running
		steps  []step
		want   string // what and when, "" for nothing
		awake  string // at the last step
		billed int    // at the last step
	}{
		{name: "never", spec: api.SandboxSpec{Timeout: never()}, want: ""},
		{name: "timeout", spec: api.SandboxSpec{Timeout: after(1800)}, want: "timeout kill 1800"},
		{name: "idle from the start", spec: idle60, want: "idle pause 60"},
		{name: "T07 resumed counts anew", spec: api.SandboxSpec{Timeout: after(1800)}, steps: []step{
			{100, func(r *life.Record, now time.Time) { r.Stop(now) }},
			{5000, func(r *life.Record, now time.Time) { r.Start(now) }},
		}, want: "timeout kill 6800", billed: 100},
		{name: "paused, the timeout does not count", spec: api.SandboxSpec{Timeout: after(1800)}, state: api.StatePaused, want: ""},
		{name: "T06 execs and looks leave the timeout", spec: api.SandboxSpec{Timeout: after(1800)}, steps: []step{
			{10, begin("a")}, {20, done("a")}, {30, looked(true, true, 20)}, {40, func(r *life.Record, now time.Time) { r.Busy(now) }},
		}, want: "timeout kill 1800", awake: "cpu bytes", billed: 10 + 10},
		{name: "extend counts from now", spec: api.SandboxSpec{Timeout: after(1800)}, steps: []step{
			{1000, func(r *life.Record, now time.Time) { r.Extend(api.ExtendRequest{Timeout: after(1000)}, 0, now) }},
		}, want: "timeout kill 2000", billed: 1000},
		{name: "extend of idle leaves the timeout", spec: api.SandboxSpec{Timeout: after(1800)}, steps: []step{
			{1000, func(r *life.Record, now time.Time) { r.Extend(api.ExtendRequest{Idle: after(5000)}, 0, now) }},
		}, want: "timeout kill 1800", billed: 1000},
		{name: "T09 a running exec keeps it awake", spec: idle60, steps: []step{{0, begin("x")}, {170, looked(false, false, 160)}}, want: "timeout kill 1800", awake: "exec:x"},
		{name: "T09 and then idle counts from its end", spec: idle60, steps: []step{{0, begin("x")}, {180, done("x")}}, want: "idle pause 240"},
		{name: "two execs", spec: idle60, steps: []step{{0, begin("x")}, {5, begin("y")}, {180, done("x")}}, want: "timeout kill 1800", awake: "exec:y"},
		{name: "T10 bytes alone keep it awake", spec: idle60, steps: []step{{55, looked(false, true, 50)}}, want: "idle pause 115", awake: "bytes", billed: 50},
		{name: "T10 and then it is idle", spec: idle60, steps: []step{{55, looked(false, true, 50)}, {60, looked(false, false, 55)}}, want: "idle pause 115", billed: 55},
		{name: "cpu alone keeps it awake", spec: idle60, steps: []step{{55, looked(true, false, 50)}}, want: "idle pause 115", awake: "cpu", billed: 50},
		{name: "T11 looks that find nothing are no activity", spec: idle60, steps: []step{{5, looked(false, false, 0)}, {50, looked(false, false, 45)}}, want: "idle pause 60", billed: 50},
		{name: "a hold", spec: idle60, steps: []step{{10, hold("h", 100)}, {50, looked(false, false, 45)}}, want: "idle pause 160", awake: "hold:h", billed: 10},
		{name: "a hold that is over", spec: idle60, steps: []step{{10, hold("h", 100)}, {110, looked(false, false, 105)}}, want: "idle pause 160", billed: 20},
		{name: "a hold released", spec: idle60, steps: []step{{10, hold("h", 100)}, {30, func(r *life.Record, now time.Time) { r.Release("h", now) }}}, want: "idle pause 90", billed: 10},
		{name: "a hold does not move the timeout", spec: api.SandboxSpec{Timeout: after(100), Idle: after(60)}, steps: []step{{10, hold("h", 1000)}}, want: "timeout kill 100", awake: "hold:h", billed: 10},
		{name: "an exec does not move the timeout", spec: api.SandboxSpec{Timeout: after(100)}, steps: []step{{10, begin("x")}}, want: "timeout kill 100", awake: "exec:x", billed: 10},
		{name: "lease", spec: api.SandboxSpec{Lease: lease(30, "")}, want: "lease kill 30"},
		{name: "lease renewed", spec: api.SandboxSpec{Lease: lease(30, "pause")}, steps: []step{{20, func(r *life.Record, now time.Time) { r.Renew(now) }}}, want: "lease pause 50", billed: 20},
		{name: "a lease counts while paused", spec: api.SandboxSpec{Lease: lease(30, "kill")}, state: api.StatePaused, want: "lease kill 30"},
		{name: "a lease that pauses has nothing to do when paused", spec: api.SandboxSpec{Lease: lease(30, "pause")}, state: api.StatePaused, want: ""},
		{name: "a lease that stops what is paused", spec: api.SandboxSpec{Lease: lease(30, "stop")}, state: api.StatePaused, want: "lease stop 30"},
		{name: "a lease that stops what is stopped", spec: api.SandboxSpec{Lease: lease(30, "stop")}, state: api.StateStopped, want: ""},
		{name: "lost is deleted when it would have been", spec: api.SandboxSpec{Timeout: after(1800)}, state: api.StateLost, want: "timeout kill 1800"},
		{name: "lost is not paused", spec: api.SandboxSpec{Timeout: after(1800), OnTimeout: "pause"}, state: api.StateLost, want: ""},
		{name: "a state that passes", spec: api.SandboxSpec{Lease: lease(30, "kill")}, state: api.StatePausing, want: ""},
		{name: "adopted: idle and lease anew, the timeout not", spec: api.SandboxSpec{Timeout: after(100), Idle: after(60), Lease: lease(50, "")}, steps: []step{
			{55, func(r *life.Record, now time.Time) { r.Adopt(now) }}}, want: "timeout kill 100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := life.From(c.spec, 0)
			if err != nil {
				t.Fatal(err)
			}
			r := life.Record{Settings: s}
			r.Start(t0)
			now := t0
			for _, s := range c.steps {
				now = at(s.at)
				s.do(&r, now)
			}
			if c.state == "" {
				c.state = api.StateRunning
			}
			got := ""
			if n := r.Next(c.state); n.Do != "" {
				got = fmt.Sprintf("%s %s %d", n.Why, n.Do, int(n.At.Sub(t0).Seconds()))
				if n.Due(n.At.Add(-1)) || !n.Due(n.At) {
					t.Error("it is due at another time than it says")
				}
			}
			if got != c.want {
				t.Errorf("next is %q, want %q", got, c.want)
			}
			if c.state != api.StateRunning {
				return
			}
			awake := r.Awake(c.state, now)
			if s := strings.Join(awake, " "); s != c.awake {
				t.Errorf("awake because of %q, want %q", s, c.awake)
			}
			if idle := r.IdleSince(c.state, now); (idle == nil) != (len(awake) > 0) {
				t.Errorf("idle since %v while awake because of %v", idle, awake)
			}
			if b := r.IdleBilled(now); b != secs(c.billed) {
				t.Errorf("idle billed %v, want %ds", time.Duration(b), c.billed)
			}
		})
	}
}

// TestLook holds when it is looked at what a sandbox uses: never for nothing.
func TestLook(t *testing.T) {
	r := life.Record{Settings: life.Settings{Timeout: never(), Idle: never()}}
	r.Start(t0)
	if d := r.Look(api.StateRunning, t0); d != 0 {
		t.Errorf("without an idle setting every %v", d)
	}
	r.Idle = after(60)
	if d := r.Look(api.StateRunning, t0); d <= 0 || d > 5*time.Second {
		t.Errorf("running and idle every %v", d)
	}
	if d := r.Look(api.StatePaused, t0); d != 0 {
		t.Errorf("paused every %v", d)
	}
	r.Begin("x", t0)
	if d := r.Look(api.StateRunning, t0); d != 0 {
		t.Errorf("with an exec every %v", d)
	}
	r.Done("x", t0)
	r.Hold(api.Hold{ID: "h", Until: at(10)}, t0)
	if d := r.Look(api.StateRunning, at(5)); d != 0 {
		t.Errorf("with a hold every %v", d)
	}
	if d := r.Look(api.StateRunning, at(10)); d == 0 {
		t.Error("not after the hold has ended")
	}
}

func TestWork(t *testing.T) {
	for _, c := range []struct {
		used, between time.Duration
		want          bool
	}{
		{0, 5 * time.Second, false},
		{10 * time.Millisecond, 5 * time.Second, false}, // a poll now and then
		{100 * time.Millisecond, 5 * time.Second, true},
		{50 * time.Millisecond, 100 * time.Millisecond, true},
		{5 * time.Second, 5 * time.Second, true},
	} {
		if got := life.Work(c.used, c.between); got != c.want {
			t.Errorf("%v in %v is work: %t", c.used, c.between, got)
		}
	}
}

// TestAgainstSeconds compares a random life with a model that looks at every second:
// when it is idle, when it would be paused, and how long it was idle in all.
func TestAgainstSeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		idle := rapid.IntRange(2, 20).Draw(t, "idle")
		timeout := rapid.IntRange(5, 200).Draw(t, "timeout")
		r := life.Record{Settings: life.Settings{Timeout: after(timeout), OnTimeout: "kill", Idle: after(idle), OnIdle: "pause"}}
		r.Start(t0)
		execs, holds := map[string]bool{}, map[string]int{}
		last, billed, counted := 0, 0, 0 // when it was last busy; seconds idle; timeout from
		for now := 0; now < 100; now++ {
			// At this second: holds end, then things happen.
			for id, until := range holds {
				if until <= now {
					delete(holds, id)
				}
			}
			switch rapid.IntRange(0, 9).Draw(t, "act") {
			case 0:
				id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "exec")
				r.Begin(id, at(now))
				execs[id], last = true, now
			case 1:
				id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "exec")
				if execs[id] {
					last = now
				}
				r.Done(id, at(now))
				delete(execs, id)
			case 2:
				id := rapid.SampledFrom([]string{"h", "i"}).Draw(t, "hold")
				until := now + rapid.IntRange(1, 15).Draw(t, "for")
				r.Hold(api.Hold{ID: id, Until: at(until)}, at(now))
				holds[id], last = until, now
			case 3:
				id := rapid.SampledFrom([]string{"h", "i"}).Draw(t, "hold")
				if _, ok := holds[id]; ok {
					last = now
				}
				r.Release(id, at(now))
				delete(holds, id)
			case 4:
				r.Busy(at(now))
				last = now
			case 5:
				r.Looked(false, false, at(now), at(now))
			case 6:
				d := rapid.IntRange(5, 200).Draw(t, "extend")
				if err := r.Extend(api.ExtendRequest{Timeout: after(d)}, 0, at(now)); err != nil {
					t.Fatal(err)
				}
				timeout, counted = d, now
			}
			busy := len(execs)+len(holds) > 0
			if busy {
				last = now
			}
			// The model's answers for this moment.
			if got := r.IdleBilled(at(now)); got != secs(billed) {
				t.Fatalf("second %d: idle billed %v, the model says %d", now, time.Duration(got), billed)
			}
			if got := len(r.Awake(api.StateRunning, at(now))) > 0; got != busy {
				t.Fatalf("second %d: awake %t, the model says %t", now, got, busy)
			}
			want := life.Next{At: at(counted + timeout), Do: "kill", Why: bailey.EndTimeout}
			if len(execs) == 0 {
				quiet := last
				for _, until := range holds {
					quiet = max(quiet, until)
				}
				if quiet+idle < counted+timeout {
					want = life.Next{At: at(quiet + idle), Do: "pause", Why: bailey.EndIdle}
				}
			}
			if got := r.Next(api.StateRunning); got != want {
				t.Fatalf("second %d: next %+v, the model says %+v", now, got, want)
			}
			if !busy {
				billed++ // this second, until the next
			} else {
				last = now
				for _, until := range holds {
					if until == now+1 && len(execs) == 0 {
						last = now + 1
					}
				}
				if len(execs) > 0 {
					last = now + 1
				}
				for _, until := range holds {
					if until > now+1 {
						last = now + 1
					}
				}
			}
		}
	})
}
