//go:build linux && (amd64 || arm64)

package guest

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// thrift gives memory back some time after the last activity, so that a process that
// only waits stays small whatever it did before.
type thrift struct {
	mu   sync.Mutex
	busy bool // something happened since memory was last given back
	trim *time.Timer
}

const (
	idleTrim  = 2 * time.Second // how long nothing has to happen
	trimAbove = 5 << 18         // bytes of heap, used or not, that are worth a collection
)

// touch notes activity.
func (t *thrift) touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = true
	if t.trim == nil {
		t.trim = time.AfterFunc(idleTrim, t.giveBack)
	}
}

func (t *thrift) giveBack() {
	t.mu.Lock()
	again := t.busy
	t.busy = false
	if again {
		t.trim.Reset(idleTrim)
	} else {
		t.trim = nil
	}
	t.mu.Unlock()
	if again {
		return
	}
	// A collection leaves more bookkeeping behind than a small heap is worth.
	var m runtime.MemStats
	if runtime.ReadMemStats(&m); m.HeapSys-m.HeapReleased > trimAbove {
		debug.FreeOSMemory()
	}
}
