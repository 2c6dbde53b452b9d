package life

import (
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Next is what will happen to a sandbox by itself unless something changes. The
// zero Next is nothing.
type Next struct {
	At  time.Time
	Do  api.Action
	Why bailey.Reason // timeout, idle, lease
}

// Due says that it is to be done now.
func (n Next) Due(now time.Time) bool { return n.Do != "" && !n.At.After(now) }

// Next says what happens next. Of two at one time the lease comes before the
// timeout and that before idleness. While an exec runs idleness is not among them,
// and while the state is one that passes nothing is: the engine asks again then.
func (r *Record) Next(s api.State) Next {
	var n Next
	add := func(at time.Time, do api.Action, why bailey.Reason) {
		if does(do, s) && (n.Do == "" || at.Before(n.At)) {
			n = Next{At: at, Do: do, Why: why}
		}
	}
	if r.Lease != nil {
		add(r.LeaseUntil, r.Lease.Action, bailey.EndLease)
	}
	if at, ok := r.Expires(s); ok {
		add(at, r.OnTimeout, bailey.EndTimeout)
	}
	if s == api.StateRunning && !r.Idle.Never && r.Idle.After > 0 && len(r.Execs) == 0 {
		add(r.quiet().Add(time.Duration(r.Idle.After)), r.OnIdle, bailey.EndIdle)
	}
	return n
}

// Expires says when the timeout ends, and whether it does. It counts while the
// sandbox runs; and in one that was lost, so that what would have been deleted is.
func (r *Record) Expires(s api.State) (at time.Time, ok bool) {
	if r.Timeout.Never || r.Timeout.After <= 0 {
		return time.Time{}, false
	}
	switch s {
	case api.StateRunning, api.StateLost, api.StateFailed:
		return r.Counted.Add(time.Duration(r.Timeout.After)), true
	}
	return time.Time{}, false
}

// does says whether an action changes anything in a state.
func does(a api.Action, s api.State) bool {
	switch s {
	case api.StateRunning:
		return true
	case api.StatePaused:
		return a == api.ActionStop || a == api.ActionKill
	case api.StateStopped, api.StateLost, api.StateFailed:
		return a == api.ActionKill
	}
	return false
}

// Awake names all that keeps the sandbox from being idle: exec:ID, cpu, bytes,
// question, hold:ID. Empty is idle.
func (r *Record) Awake(s api.State, now time.Time) []string {
	if s != api.StateRunning {
		return nil
	}
	var why []string
	for _, id := range r.Execs {
		why = append(why, "exec:"+id)
	}
	if r.CPU {
		why = append(why, "cpu")
	}
	if r.Bytes {
		why = append(why, "bytes")
	}
	if r.Asking {
		why = append(why, "question")
	}
	for _, h := range r.Holds {
		if h.Until.After(now) {
			why = append(why, "hold:"+h.ID)
		}
	}
	return why
}

// IdleSince is when it was last busy; nil while it is, and while it does not run.
func (r *Record) IdleSince(s api.State, now time.Time) *time.Time {
	if s != api.StateRunning || len(r.Awake(s, now)) > 0 {
		return nil
	}
	t := r.quiet()
	return &t
}

// Look says how often it is to be looked at what a sandbox uses; 0 is not at all:
// it does not run, has no idle setting, or an exec or hold keeps it awake anyway.
func (r *Record) Look(s api.State, now time.Time) time.Duration {
	if s != api.StateRunning || r.Idle.Never || r.Idle.After <= 0 || len(r.Execs) > 0 {
		return 0
	}
	for _, h := range r.Holds {
		if h.Until.After(now) {
			return 0
		}
	}
	// What is found is taken to have been done just now, so this is how much later
	// than asked a pause may come.
	return min(max(time.Duration(r.Idle.After)/12, 100*time.Millisecond), 4*time.Second)
}

// Work says whether processor time used between two looks is work. A program that
// only waits wakes up now and then, and bailey-init does.
func Work(used, between time.Duration) bool { return used > 5*time.Millisecond+between/200 }
