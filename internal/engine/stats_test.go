//go:build linux

package engine

import (
	"testing"

	"github.com/bailey-sandbox/bailey/api"
)

// What a sandbox uses is told whether or not it runs.
func TestStats(t *testing.T) {
	e := openEngine(t)
	s := create(t, e, process)
	before, err := e.Stats(t.Context(), me, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	sh(t, e, s.ID, "head -c 3000000 /dev/urandom > $HOME/file; sync $HOME/file")
	after, err := e.Stats(t.Context(), me, s.ID)
	if err != nil || after.Disk < before.Disk+3000000 || after.Memory == 0 {
		t.Errorf("%+v, then %+v, %v", before, after, err)
	}
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	stopped, err := e.Stats(t.Context(), me, s.ID)
	if err != nil || stopped.Disk < 3000000 || stopped.Memory != 0 || stopped.Pids != 0 {
		t.Errorf("%+v, %v", stopped, err)
	}
	if got, err := e.Sandbox(t.Context(), me, s.ID); err != nil || got.State != api.StateStopped {
		t.Errorf("%s, %v", got.State, err)
	}
}
