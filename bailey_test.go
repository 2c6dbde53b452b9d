package bailey_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

func TestIsolationNames(t *testing.T) {
	for level := bailey.IsolationAuto; level <= bailey.IsolationMachine; level++ {
		text, err := json.Marshal(level)
		if err != nil {
			t.Fatal(err)
		}
		var back bailey.Isolation
		if err := json.Unmarshal(text, &back); err != nil || back != level {
			t.Errorf("%s: %v, %v", text, back, err)
		}
	}
	for _, name := range []string{"", "Process", "isolation(7)", "vm"} {
		if _, err := bailey.ParseIsolation(name); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, level := range []bailey.Isolation{-1, bailey.IsolationMachine + 1} {
		if _, err := bailey.ParseIsolation(level.String()); err == nil {
			t.Errorf("%s is a level", level)
		}
	}
	if !(bailey.IsolationInterpreter < bailey.IsolationProcess && bailey.IsolationProcess < bailey.IsolationContainer &&
		bailey.IsolationContainer < bailey.IsolationGVisor && bailey.IsolationGVisor < bailey.IsolationMicroVM) {
		t.Error("levels are not ordered by strength")
	}
}

func TestErrors(t *testing.T) {
	err := bailey.Errorf(bailey.CodeStorage, "write it", "make room", "%s: %w", "disk", fs.ErrPermission)
	if got, want := err.Error(), "cannot write it: disk: permission denied; make room [storage]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, fs.ErrPermission) {
		t.Error("the cause is lost")
	}
	if got := bailey.Errorf(bailey.CodeUsage, "do it", "", "no").Error(); got != "cannot do it: no [usage]" {
		t.Errorf("without a fix: %q", got)
	}
	for _, tc := range []struct {
		err  error
		want bailey.Code
	}{
		{nil, ""},
		{err, bailey.CodeStorage},
		{fmt.Errorf("outer: %w", err), bailey.CodeStorage},
		{errors.Join(fs.ErrClosed, err), bailey.CodeStorage},
		{fs.ErrClosed, bailey.CodeInternal},
	} {
		if got := bailey.CodeOf(tc.err); got != tc.want {
			t.Errorf("%v has code %q, not %q", tc.err, got, tc.want)
		}
	}
}

func TestEnds(t *testing.T) {
	for _, tc := range []struct {
		end  bailey.End
		code int
		text string
	}{
		{bailey.End{Reason: bailey.EndExit, ExitCode: 3}, 3, "exited with status 3"},
		{bailey.End{Reason: bailey.EndSignal, ExitCode: 143, Signal: "SIGTERM"}, 143, "ended by SIGTERM"},
		{bailey.End{Reason: bailey.EndNotStarted, ExitCode: 127}, 127, "not started"},
		{bailey.End{Reason: bailey.EndUser, ExitCode: 137}, 137, "ended by its owner"},
		{bailey.End{Reason: bailey.EndTimeout, ExitCode: 137}, bailey.ExitTimeout, "ended by its timeout"},
		{bailey.End{Reason: bailey.EndHostLost, ExitCode: 137}, bailey.ExitBailey, "lost with the process that held it"},
		{bailey.End{Reason: bailey.EndOOM, Limit: 64, Victim: "cc1"}, bailey.ExitLimit, "ended by its memory limit of 64 bytes (victim cc1)"},
		{bailey.End{Reason: bailey.EndOutput, Limit: 5}, bailey.ExitLimit, "ended by its output limit of 5 bytes"},
		{bailey.End{Reason: bailey.EndDiskFull, Limit: 5}, bailey.ExitLimit, "ended by its disk limit of 5 bytes"},
		{bailey.End{Reason: bailey.EndOOM, Limit: 64 << 20}, bailey.ExitLimit, "ended by its memory limit of 64 MiB"},
		{bailey.End{Reason: bailey.EndOutput, Limit: 3 << 29}, bailey.ExitLimit, "ended by its output limit of 1.5 GiB"},
		{bailey.End{Reason: bailey.EndDiskFull, Limit: 2000}, bailey.ExitLimit, "ended by its disk limit of 2 KiB"},
		{bailey.End{Reason: bailey.EndDiskFull, Limit: 5000 << 40}, bailey.ExitLimit, "ended by its disk limit of 5000 TiB"},
		{bailey.End{Reason: bailey.EndPids, Limit: 5}, bailey.ExitLimit, "ended by its limit of 5 processes"},
		{bailey.End{Reason: bailey.EndBudget}, bailey.ExitLimit, "ended: budget"},
	} {
		if got := tc.end.Code(); got != tc.code {
			t.Errorf("%s: code %d, want %d", tc.end.Reason, got, tc.code)
		}
		if got := tc.end.String(); got != tc.text {
			t.Errorf("%s: %q, want %q", tc.end.Reason, got, tc.text)
		}
	}
}
