package act

import (
	"context"
	"sync"
	"time"
)

// Memory bounds what one sandbox makes the gate keep at a time: bodies and
// messages that are read whole, streams, decoders. The memory is the gate's and
// not the sandbox's, whose own limit does not see it. A nil Memory has no bound.
type Memory struct {
	mu    sync.Mutex
	all   int64 // bytes
	left  int64
	freed chan struct{} // closed when some is given back
}

// NewMemory makes one of n bytes.
func NewMemory(n int64) *Memory { return &Memory{all: n, left: n, freed: make(chan struct{})} }

// patience is how long is waited for others to give some back.
const patience = 10 * time.Second

// Take takes n bytes, and waits for them for at most 10 seconds. It gives a
// *Refused when there are none.
func (m *Memory) Take(ctx context.Context, n int64) error {
	if m == nil {
		return nil
	}
	var late <-chan time.Time
	for {
		m.mu.Lock()
		if n <= m.left {
			m.left -= n
			m.mu.Unlock()
			return nil
		}
		freed := m.freed
		m.mu.Unlock()
		if n > m.all {
			return errMemory
		}
		if late == nil {
			t := time.NewTimer(patience)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-freed:
		case <-late:
			return errMemory
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errMemory = &Refused{Reason: "gate_memory", Why: "the gate keeps as much for this sandbox as it may: send fewer or smaller requests at a time"}

// Give gives n bytes back.
func (m *Memory) Give(n int64) {
	if m == nil || n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left += n
	close(m.freed)
	m.freed = make(chan struct{})
}

type memoryKey struct{}

// WithMemory notes in a context what its sandbox's streams share.
func WithMemory(ctx context.Context, m *Memory) context.Context {
	return context.WithValue(ctx, memoryKey{}, m)
}

// MemoryOf gives what WithMemory noted, or nil.
func MemoryOf(ctx context.Context) *Memory {
	m, _ := ctx.Value(memoryKey{}).(*Memory)
	return m
}

// Hold takes n bytes of the memory that ctx notes, until ctx ends.
func Hold(ctx context.Context, n int64) error {
	m := MemoryOf(ctx)
	if err := m.Take(ctx, n); err != nil || m == nil {
		return err
	}
	context.AfterFunc(ctx, func() { m.Give(n) })
	return nil
}
