package run

import (
	"errors"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// later is the removal of folders that are out of the way already. Some disks
// take longer for it than a sandbox lives, and nobody has to wait.
type later struct {
	tasks sync.WaitGroup
	mu    sync.Mutex
	err   error
}

func (h *Host) removeLater(gone string) {
	h.later.tasks.Go(func() {
		if err := folder.RemoveTree(gone); err != nil {
			h.later.mu.Lock()
			h.later.err = errors.Join(h.later.err, err)
			h.later.mu.Unlock()
		}
	})
}

// Drop removes a run as its Remove does, in the background. Its lock is given up.
func (h *Host) Drop(r *folder.Run) error {
	gone, err := r.Leave()
	if err == nil {
		h.removeLater(gone)
	}
	return err
}

// Wait returns when all that was left to be removed in the background has
// gone and the audit log is closed, with what went wrong since the last Wait. What is still there when the
// process ends is removed by the next one that looks (folder.Sweep).
func (h *Host) Wait() error {
	h.later.tasks.Wait()
	logged := h.closeLog()
	h.later.mu.Lock()
	defer h.later.mu.Unlock()
	err := errors.Join(h.later.err, logged)
	h.later.err = nil
	return err
}
