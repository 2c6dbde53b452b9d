package life

import (
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// DefaultTimeout is how long a sandbox lives whose owner did not say.
const DefaultTimeout = api.Duration(time.Hour)

// MinIdle is the least that an idle setting may be: how much was done is asked in
// steps, and below this a command that follows another would find it paused.
const MinIdle = api.Duration(time.Second)

// MinLease is the least TTL of a lease: an owner must be able to renew it in time.
const MinLease = api.Duration(time.Second)

// Settings are what an owner asked for, with the defaults in. They are kept in a
// sandbox's record as they are, so that a resume has the timeout of the create.
type Settings struct {
	Timeout   api.Lifetime `json:"timeout"`
	OnTimeout api.Action   `json:"on_timeout"`
	Idle      api.Lifetime `json:"idle"`
	OnIdle    api.Action   `json:"on_idle"`
	Lease     *api.Lease   `json:"lease,omitempty"`
}

// From takes the settings out of a spec. max is the most that a sandbox may live, 0
// is no bound: a longer timeout is refused with code quota_exceeded, never
// shortened, and so is never. Only the default gives way to max, as nobody asked
// for it.
func From(spec api.SandboxSpec, max api.Duration) (Settings, error) {
	s := Settings{Timeout: spec.Timeout, OnTimeout: spec.OnTimeout, Idle: spec.Idle, OnIdle: spec.OnIdle}
	if s.Timeout.IsZero() {
		s.Timeout.After = DefaultTimeout
		if max > 0 && s.Timeout.After > max {
			s.Timeout.After = max
		}
	}
	if s.OnTimeout == "" {
		s.OnTimeout = api.ActionKill
	}
	if s.Idle.IsZero() {
		s.Idle.Never = true
	}
	if s.OnIdle == "" {
		s.OnIdle = api.ActionPause
	}
	if spec.Lease != nil {
		l := *spec.Lease
		if l.Action == "" {
			l.Action = api.ActionKill
		}
		s.Lease = &l
	}
	return s, s.check(max)
}

// Extend gives the settings with what the request changes. What it leaves out
// stays.
func (s Settings) Extend(req api.ExtendRequest, max api.Duration) (Settings, error) {
	if !req.Timeout.IsZero() {
		s.Timeout = req.Timeout
	}
	if !req.Idle.IsZero() {
		s.Idle = req.Idle
	}
	return s, s.check(max)
}

func (s Settings) check(max api.Duration) error {
	for _, a := range []struct {
		of string
		is api.Action
	}{{"timeout", s.OnTimeout}, {"idle", s.OnIdle}, {"lease", leaseAction(s.Lease)}} {
		switch a.is {
		case api.ActionPause, api.ActionStop, api.ActionKill:
		default:
			return bailey.Errorf(bailey.CodeUsage, "do "+string(a.is)+" at the end of the "+a.of, "one of pause, stop, kill", "there is no such action")
		}
	}
	if err := length("timeout", s.Timeout, 1); err != nil {
		return err
	}
	if err := length("idle time", s.Idle, MinIdle); err != nil {
		return err
	}
	if max > 0 && (s.Timeout.Never || s.Timeout.After > max) {
		return bailey.Errorf(bailey.CodeQuotaExceeded, "keep a sandbox for "+text(s.Timeout), "ask for at most "+long(max)+", or for a greater max_timeout",
			"the limit of its owner is max_timeout %s", long(max))
	}
	if s.Lease != nil && s.Lease.TTL < MinLease {
		return bailey.Errorf(bailey.CodeUsage, "hold a lease of "+long(s.Lease.TTL), "at least "+long(MinLease), "it could not be renewed in time")
	}
	return nil
}

// length refuses what is no length of time. The wire refuses 0 already; callers in
// Go have no wire.
func length(what string, l api.Lifetime, least api.Duration) error {
	switch {
	case l.Never && l.After != 0:
		return bailey.Errorf(bailey.CodeUsage, "set the "+what, "one of both", "it says both never and %s", long(l.After))
	case !l.Never && l.After < least:
		return bailey.Errorf(bailey.CodeUsage, "set the "+what+" to "+long(l.After), "at least "+long(least)+", or never", "it is too short")
	}
	return nil
}

func leaseAction(l *api.Lease) api.Action {
	if l == nil {
		return api.ActionKill
	}
	return l.Action
}

func text(l api.Lifetime) string {
	if l.Never {
		return "ever"
	}
	return long(l.After)
}

func long(d api.Duration) string { return time.Duration(d).String() }
