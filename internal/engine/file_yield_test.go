//go:build linux

package engine

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// TestSlowReaderHoldsNothing: whoever reads a file slowly holds up no act on the
// sandbox, and is told why its file ends.
func TestSlowReaderHoldsNothing(t *testing.T) {
	e, _, forward := timed(t)
	spec := process
	spec.Idle.Never, spec.Timeout.Never = true, true
	s := create(t, e, spec)
	sh(t, e, s.ID, "cd; head -c 50000000 /dev/zero > f")
	w := sh(t, e, s.ID, "cd; pwd")
	r, _, err := e.ReadFile(t.Context(), me, s.ID, w+"/f", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	begun := func() bool { b := boxOf(t, e, s.ID); b.mu.Lock(); defer b.mu.Unlock(); return b.shut }
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := e.Snapshot(ctx, me, s.ID, api.SnapshotSpec{})
		done <- err
	}()
	eventually(t, time.Second, "the snapshot waits", begun)
	select {
	case err := <-done:
		t.Fatalf("the snapshot did not wait for the reader: %v", err)
	default:
	}
	eventually(t, time.Second, "the snapshot is made", func() bool {
		forward(filesWithin)
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the snapshot: %v", err)
			}
			return true
		default:
			return false
		}
	})
	if n, err := io.Copy(io.Discard, r); bailey.CodeOf(err) != bailey.CodeBusy {
		t.Errorf("after %d bytes the reader gets %v", n, err)
	}
	if out := sh(t, e, s.ID, "cd; wc -c < f"); out != "50000000" {
		t.Errorf("the file has %s bytes", out)
	}
}
