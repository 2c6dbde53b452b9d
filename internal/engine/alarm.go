package engine

import (
	"container/heap"
	"sync"
	"time"
)

// alarms rings at times, by name. There is one timer of the clock for all of them,
// so that a thousand sandboxes that sleep cost nothing until something is due.
type alarms struct {
	clock Clock
	ring  func(name string) // must not block, and sets no alarm itself

	mu     sync.Mutex
	queue  alarmQueue
	byName map[string]*alarm
	stop   func() bool // of the timer that is set, nil for none
	at     time.Time   // when that goes off
	closed bool
}

// alarm is one time.
type alarm struct {
	name  string
	at    time.Time
	index int
}

// longest is the most that the timer is set to. The host's timers do not see that
// its clock was put forward, or that it slept.
const longest = time.Minute

func (a *alarms) open(c Clock, ring func(name string)) {
	a.clock, a.ring, a.byName = c, ring, map[string]*alarm{}
}

// set lets it ring for a name at a time, and not at the one that was set before. The
// zero time is never.
func (a *alarms) set(name string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	item := a.byName[name]
	switch {
	case at.IsZero() && item == nil:
		return
	case at.IsZero():
		heap.Remove(&a.queue, item.index)
		delete(a.byName, name)
	case item == nil:
		item = &alarm{name: name, at: at}
		a.byName[name] = item
		heap.Push(&a.queue, item)
	default:
		item.at = at
		heap.Fix(&a.queue, item.index)
	}
	a.wind()
}

// wind sets the timer to the next time. One that goes off too early does no harm, so
// that a time which moves on, as it does with each exec, costs nothing.
func (a *alarms) wind() {
	if len(a.queue) == 0 {
		return
	}
	now := a.clock.Now()
	at := now.Add(min(max(a.queue[0].at.Sub(now), 0), longest))
	if a.stop != nil {
		if !at.Before(a.at) {
			return
		}
		a.stop()
	}
	a.at = at
	a.stop = a.clock.AfterFunc(at.Sub(now), a.gone)
}

// gone is called when the timer has gone off.
func (a *alarms) gone() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.stop = nil
	now := a.clock.Now()
	for len(a.queue) > 0 && !a.queue[0].at.After(now) {
		item := heap.Pop(&a.queue).(*alarm)
		delete(a.byName, item.name)
		a.ring(item.name)
	}
	a.wind()
}

// close lets nothing ring any more.
func (a *alarms) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.stop != nil {
		a.stop()
	}
}

// alarmQueue is a heap, the earliest first.
type alarmQueue []*alarm

func (q alarmQueue) Len() int           { return len(q) }
func (q alarmQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q alarmQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *alarmQueue) Push(x any) {
	item := x.(*alarm)
	item.index = len(*q)
	*q = append(*q, item)
}
func (q *alarmQueue) Pop() any {
	old := *q
	item := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return item
}
