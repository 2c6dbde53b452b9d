package driver_test

import (
	"os"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// TestLevelThatIsNotThere: nothing weaker or stronger takes its place, and what was
// kept of its sandbox is closed.
func TestLevelThatIsNotThere(t *testing.T) {
	l := driver.Levels{}
	if c := l.Probe(t.Context(), bailey.IsolationGVisor); c.Available || c.Why == "" {
		t.Errorf("%+v", c)
	}
	if in, err := l.Create(t.Context(), driver.Spec{Level: bailey.IsolationGVisor}); bailey.CodeOf(err) != bailey.CodeIsolationUnavailable {
		t.Errorf("%v %v", in, err)
	}
	if in, err := l.Restore(t.Context(), driver.Spec{Level: bailey.IsolationGVisor}, driver.Memory{}, t.TempDir()); bailey.CodeOf(err) != bailey.CodeNotAvailable {
		t.Errorf("%v %v", in, err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Adopt(t.Context(), driver.Spec{}, driver.Record{Level: bailey.IsolationGVisor}, driver.Kept{Files: map[string]*os.File{driver.HeldAgent: f}})
	if bailey.CodeOf(err) != bailey.CodeIsolationUnavailable || f.Close() == nil {
		t.Errorf("%v, and what was kept is open", err)
	}
}
