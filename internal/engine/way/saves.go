package way

import (
	"encoding/json"
	"sync"
)

// saves brings the states of ways to Options.Saved, for each sandbox the newest
// and never an older one behind it.
type saves struct {
	mu    sync.Mutex
	known map[string]*kept
	due   []string      // whose state a gate has told by itself
	wake  chan struct{} // due has grown
	quit  chan struct{}
	done  chan struct{}
	call  func(sandbox string, state json.RawMessage) error
}

// kept is the newest state of one way.
type kept struct {
	state json.RawMessage
	seq   int64 // of state

	saving sync.Mutex
	saved  int64 // the seq that was saved
}

func (s *saves) start(w *Ways) {
	s.call = w.options.Saved
	s.wake, s.quit, s.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.done)
		for {
			select {
			case <-s.wake:
				s.flush()
			case <-s.quit:
				s.flush()
				return
			}
		}
	}()
}

func (s *saves) stop() { close(s.quit); <-s.done }

func (s *saves) begin(sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]*kept{}
	}
	s.known[sandbox] = &kept{}
}

func (s *saves) end(sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, sandbox)
}

// maxState bounds a state, in bytes: a few names and numbers. A gate reads what
// sandboxes send, and what it says is kept by others.
const maxState = 256 << 10

// seqOf tells states apart by age; 0 for what is none.
func seqOf(state json.RawMessage) int64 {
	if len(state) > maxState {
		return 0
	}
	var of struct {
		Seq int64 `json:"seq"`
	}
	if json.Unmarshal(state, &of) != nil {
		return 0
	}
	return of.Seq
}

// newest gives the newer of a state and what is known.
func (s *saves) newest(sandbox string, state json.RawMessage) json.RawMessage {
	seq := seqOf(state)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.known[sandbox]
	switch {
	case k == nil:
		return state
	case seq > k.seq:
		k.state, k.seq = state, seq
	}
	if k.state == nil {
		return state
	}
	return k.state
}

// take is told a state by the gate; it does not block.
func (s *saves) take(sandbox string, state json.RawMessage) {
	s.newest(sandbox, state)
	s.mu.Lock()
	s.due = append(s.due, sandbox)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *saves) flush() {
	s.mu.Lock()
	due := s.due
	s.due = nil
	s.mu.Unlock()
	for _, sandbox := range due {
		// One that cannot be saved comes again with the next change; the next gate has it
		// from here.
		_ = s.save(sandbox, nil)
	}
}

// save has the newest state saved, unless it is.
func (s *saves) save(sandbox string, state json.RawMessage) error {
	if state != nil {
		s.newest(sandbox, state)
	}
	s.mu.Lock()
	k := s.known[sandbox]
	s.mu.Unlock()
	if k == nil || s.call == nil {
		return nil
	}
	k.saving.Lock()
	defer k.saving.Unlock()
	s.mu.Lock()
	state, seq := k.state, k.seq
	s.mu.Unlock()
	if state == nil || seq <= k.saved {
		return nil
	}
	if err := s.call(sandbox, state); err != nil {
		return err
	}
	k.saved = seq
	return nil
}
