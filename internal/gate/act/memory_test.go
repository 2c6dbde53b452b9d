package act

import (
	"context"
	"errors"
	"testing"
)

// TestMemoryIsShared: what one has taken another waits for, and gets when it is
// given back or its holder's context ends. More than there is at all is refused.
func TestMemoryIsShared(t *testing.T) {
	m := NewMemory(100)
	ctx := WithMemory(t.Context(), m)
	if err := Hold(ctx, 101); !errors.Is(err, errMemory) {
		t.Errorf("more than there is: %v", err)
	}
	holder, end := context.WithCancel(ctx)
	if err := Hold(holder, 60); err != nil {
		t.Fatal(err)
	}
	if err := m.Take(ctx, 40); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := m.Take(gone, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("somebody who has gone: %v", err)
	}
	got := make(chan error)
	go func() { got <- m.Take(ctx, 60) }()
	end()
	if err := <-got; err != nil {
		t.Errorf("what was given back: %v", err)
	}
	m.Give(100)
	if err := m.Take(ctx, 100); err != nil {
		t.Errorf("all of it: %v", err)
	}
	if err := Hold(t.Context(), 1<<40); err != nil {
		t.Errorf("without a bound: %v", err)
	}
}
