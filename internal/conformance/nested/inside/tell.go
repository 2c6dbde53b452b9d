//go:build linux

package main

import (
	"encoding/json"
	"os"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested/plan"
)

// teller writes events to the machine's port, each whole.
type teller struct {
	mu   sync.Mutex
	port *os.File
}

func (t *teller) tell(e plan.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.port == nil {
		return
	}
	b, err := json.Marshal(e)
	if err != nil {
		return
	}
	_, _ = t.port.Write(append(b, '\n'))
}
