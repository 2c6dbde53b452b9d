package life

import (
	"slices"
	"time"

	"github.com/bailey-sandbox/bailey/api"
)

// Record is what has to be remembered of one sandbox's life; it is part of its row.
// Its methods change it in memory only and are not safe for use at once. Times given
// to them do not go back; one that does counts as the latest that was given.
type Record struct {
	Settings
	// Counted is from when on the timeout counts: the last start, resume or Extend.
	Counted    time.Time  `json:"counted"`
	LeaseUntil time.Time  `json:"lease_until,omitzero"`
	Holds      []api.Hold `json:"holds,omitempty"`
	// Quiet is the last moment of which it is known that something was done.
	Quiet time.Time `json:"quiet"`
	// Billed is for how long it was kept running though idle, up to Quiet.
	Billed api.Duration `json:"idle_billed,omitempty"`
	// Running: idleness is counted.
	Running bool `json:"running,omitempty"`

	// What goes on at this moment is not kept: whoever adopts the sandbox finds out.
	Execs      []string `json:"-"` // ids of those that run
	CPU, Bytes bool     `json:"-"` // grew between the last two looks
	Asking     bool     `json:"-"` // at the last look a question waited for a person
}

// Clone gives a record of its own.
func (r *Record) Clone() Record {
	c := *r
	if r.Lease != nil {
		l := *r.Lease
		c.Lease = &l
	}
	c.Holds, c.Execs = slices.Clone(r.Holds), slices.Clone(r.Execs)
	return c
}

// Asked gives back what an owner has asked for: the settings, holds and what is
// counted from, as they were. What was seen meanwhile stays.
func (r *Record) Asked(was Record) {
	r.Settings, r.Counted, r.LeaseUntil, r.Holds = was.Settings, was.Counted, was.LeaseUntil, was.Holds
}

// Start says that the sandbox runs from now on: it is new, or was resumed. The
// timeout counts anew, and as somebody has asked for it the lease does too.
func (r *Record) Start(now time.Time) {
	r.Running = true
	r.Counted, r.Quiet = now, later(now, r.Quiet)
	r.Renew(now)
}

// Stop says that it runs no more: paused, stopped, lost or gone.
func (r *Record) Stop(now time.Time) {
	r.busy(now)
	r.Running, r.CPU, r.Bytes, r.Asking = false, false, false, false
}

// Adopt says that a daemon looks after the sandbox again from now on. How busy it
// was while none did nobody knows, so idleness counts anew; a lease that nobody
// could renew meanwhile does too. The timeout goes on: it was asked for in time.
func (r *Record) Adopt(now time.Time) {
	r.settle(now)
	r.Quiet = later(r.Quiet, now)
	r.Renew(now)
}

// Busy says that something is done at this moment, such as a file that is written.
func (r *Record) Busy(now time.Time) { r.busy(now) }

// Begin says that an exec runs from now on, Done that it does no more.
func (r *Record) Begin(exec string, now time.Time) {
	r.busy(now)
	r.CPU, r.Bytes, r.Asking = false, false, false // nobody looks while it runs
	if !slices.Contains(r.Execs, exec) {
		r.Execs = append(r.Execs, exec)
	}
}

// Done is the end of what Begin began. An exec that it does not know is no error.
func (r *Record) Done(exec string, now time.Time) {
	r.settle(now)
	r.Execs = slices.DeleteFunc(r.Execs, func(id string) bool { return id == exec })
}

// Looked says what a look at the sandbox found: whether the processor time or the
// bytes it used have grown since the look before. When between the two they grew
// nobody knows, so it was busy all the time. While Asking is set it is busy as well.
func (r *Record) Looked(cpu, bytes bool, before, now time.Time) {
	r.CPU, r.Bytes = cpu, bytes
	r.settle(now)
	if cpu || bytes || r.Asking {
		r.bill(before)
		r.Quiet = later(r.Quiet, now)
	}
}

// Extend changes the settings, and lets the timeout count from now on if it is
// among what changes.
func (r *Record) Extend(req api.ExtendRequest, max api.Duration, now time.Time) error {
	s, err := r.Settings.Extend(req, max)
	if err != nil {
		return err
	}
	r.Settings = s
	if !req.Timeout.IsZero() {
		r.Counted = now
	}
	return nil
}

// Renew renews the lease, if there is one.
func (r *Record) Renew(now time.Time) {
	if r.Lease != nil {
		r.LeaseUntil = now.Add(time.Duration(r.Lease.TTL))
	}
}

// Hold keeps the sandbox awake until h.Until. One with the same id is replaced.
func (r *Record) Hold(h api.Hold, now time.Time) {
	r.Release(h.ID, now)
	r.busy(now)
	r.Holds = append(r.Holds, h)
}

// Release ends a hold and says whether there was one.
func (r *Record) Release(id string, now time.Time) bool {
	r.settle(now)
	n := len(r.Holds)
	r.Holds = slices.DeleteFunc(r.Holds, func(h api.Hold) bool { return h.ID == id })
	if len(r.Holds) == n {
		return false
	}
	r.Quiet = later(r.Quiet, now)
	return true
}

// IdleBilled is for how long it was kept running though idle.
func (r *Record) IdleBilled(now time.Time) api.Duration {
	if d := now.Sub(r.quiet()); r.Running && len(r.Execs) == 0 && d > 0 {
		return r.Billed + api.Duration(d)
	}
	return r.Billed
}

func (r *Record) busy(now time.Time) {
	r.settle(now)
	r.bill(now)
	r.Quiet = later(r.Quiet, now)
}

// bill counts what has passed since something was done.
func (r *Record) bill(until time.Time) {
	if d := until.Sub(r.Quiet); r.Running && d > 0 {
		r.Billed += api.Duration(d)
		r.Quiet = until
	}
}

// settle brings Quiet up to now where something goes on, and ends the holds that are
// over: until each of them it was busy.
func (r *Record) settle(now time.Time) {
	r.Holds = slices.DeleteFunc(r.Holds, func(h api.Hold) bool {
		if h.Until.After(now) {
			return false
		}
		r.Quiet = later(r.Quiet, h.Until)
		return true
	})
	if len(r.Holds)+len(r.Execs) > 0 {
		r.Quiet = later(r.Quiet, now)
	}
}

// quiet is Quiet, or when the last hold ends.
func (r *Record) quiet() time.Time {
	t := r.Quiet
	for _, h := range r.Holds {
		t = later(t, h.Until)
	}
	return t
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
