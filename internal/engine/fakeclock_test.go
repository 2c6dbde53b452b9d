package engine

import (
	"container/heap"
	"sync"
	"testing"
	"time"
)

// fakeClock is a Clock that stands still until a test puts it forward. Each timer
// that it passes is called and waited for before time goes on, so that the order of
// events is that of their times.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	timers fakeTimers
	seq    int
}

type fakeTimer struct {
	at    time.Time
	seq   int
	f     func()
	index int // -1: it has gone off, or was stopped
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	t := &fakeTimer{at: c.now.Add(d), seq: c.seq, f: f}
	heap.Push(&c.timers, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if t.index < 0 {
			return false
		}
		heap.Remove(&c.timers, t.index)
		return true
	}
}

// advance puts the clock forward, calling what is due on the way. settled, when
// given, is called after each timer: it waits until what the timer has begun is done.
func (c *fakeClock) advance(d time.Duration, settled func()) {
	c.mu.Lock()
	until := c.now.Add(d)
	for len(c.timers) > 0 && !c.timers[0].at.After(until) {
		t := heap.Pop(&c.timers).(*fakeTimer)
		if t.at.After(c.now) {
			c.now = t.at
		}
		c.mu.Unlock()
		t.f()
		if settled != nil {
			settled()
		}
		c.mu.Lock()
	}
	c.now = until
	c.mu.Unlock()
}

// pending is how many timers are set.
func (c *fakeClock) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

type fakeTimers []*fakeTimer

func (q fakeTimers) Len() int { return len(q) }
func (q fakeTimers) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].seq < q[j].seq
}
func (q fakeTimers) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *fakeTimers) Push(x any) {
	t := x.(*fakeTimer)
	t.index = len(*q)
	*q = append(*q, t)
}
func (q *fakeTimers) Pop() any {
	old := *q
	t := old[len(old)-1]
	*q = old[:len(old)-1]
	t.index = -1
	return t
}

func TestAlarms(t *testing.T) {
	c := newFakeClock()
	start := c.Now()
	var rung []string
	var a alarms
	a.open(c, func(name string) { rung = append(rung, name+"@"+c.Now().Sub(start).String()) })
	at := func(d time.Duration) time.Time { return start.Add(d) }
	a.set("c", at(30*time.Second))
	a.set("a", at(10*time.Second))
	a.set("b", at(20*time.Second))
	a.set("gone", at(15*time.Second))
	a.set("gone", time.Time{})
	a.set("never", time.Time{})
	a.set("c", at(25*time.Second)) // moved
	a.set("far", at(3*time.Minute+time.Second))
	if n := c.pending(); n != 1 {
		t.Errorf("%d timers are set for all alarms", n)
	}
	c.advance(time.Hour, nil)
	want := []string{"a@10s", "b@20s", "c@25s", "far@3m1s"}
	if len(rung) != len(want) {
		t.Fatalf("rung %v, want %v", rung, want)
	}
	for i := range want {
		if rung[i] != want[i] {
			t.Fatalf("rung %v, want %v", rung, want)
		}
	}
	if n := c.pending(); n != 0 {
		t.Errorf("nothing is due any more and %d timers are set", n)
	}
	a.set("past", start)
	c.advance(0, nil)
	if rung[len(rung)-1] != "past@1h0m0s" {
		t.Errorf("a time that has passed did not ring: %v", rung)
	}
	a.set("closed", at(2*time.Hour))
	a.close()
	a.set("later", at(2*time.Hour))
	c.advance(3*time.Hour, nil)
	if len(rung) != len(want)+1 || c.pending() != 0 {
		t.Errorf("closed, and rung %v with %d timers", rung, c.pending())
	}
}

// TestAlarmsCostNothingAsleep holds that a thousand sandboxes with nothing due within
// the hour wake the daemon once a minute, and all of them together.
func TestAlarmsCostNothingAsleep(t *testing.T) {
	c := newFakeClock()
	var a alarms
	a.open(c, func(string) { t.Error("it rang") })
	for i := range 1000 {
		a.set(string(rune('a'+i)), c.Now().Add(2*time.Hour))
	}
	wakes := 0
	c.advance(time.Hour, func() { wakes++ })
	if wakes > 60 {
		t.Errorf("%d wakes in an hour", wakes)
	}
}
