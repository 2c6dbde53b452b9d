package bailey

import (
	"fmt"
	"strings"
	"time"
)

// Reason says why a sandbox or a command ended.
type Reason string

// The reasons an end can have.
const (
	EndExit       Reason = "exit"        // the command ended by itself; ExitCode says how
	EndSignal     Reason = "signal"      // a signal from inside or from its owner; Signal names it
	EndTimeout    Reason = "timeout"     // it ran longer than Limits.Timeout
	EndOOM        Reason = "oom"         // the memory limit was reached; Limit, Peak and Victim tell
	EndDiskFull   Reason = "disk_full"   // the disk limit was reached
	EndPids       Reason = "pids"        // the process limit was reached
	EndOutput     Reason = "output"      // the output limit was reached
	EndPolicy     Reason = "policy"      // policy ended it
	EndBudget     Reason = "budget"      // a budget was spent
	EndEvicted    Reason = "evicted"     // the host needed the room
	EndHostLost   Reason = "host_lost"   // the process that held it died
	EndUser       Reason = "user"        // its owner ended it
	EndIdle       Reason = "idle"        // nothing had happened in it for as long as its owner said
	EndLease      Reason = "lease"       // its owner gave no sign of life
	EndPromoted   Reason = "promoted"    // its sandbox moved to a stronger isolation level
	EndNotStarted Reason = "not_started" // the command could not be executed
)

// End is how a sandbox or a command ended. It is kept after the sandbox is
// gone.
type End struct {
	Reason   Reason `json:"reason"`
	ExitCode int    `json:"exit_code"`        // what a shell would show: the exit status, or 128 + signal
	Signal   string `json:"signal,omitempty"` // such as SIGTERM
	Limit    int64  `json:"limit,omitempty"`  // the limit that was reached, in its own unit
	Peak     int64  `json:"peak,omitempty"`   // the highest use seen, in the same unit
	Victim   string `json:"victim,omitempty"` // the process the kernel chose, when Reason is oom
	// Detail says more in words, such as why a command could not be started.
	Detail string `json:"detail,omitempty"`
	// LimitHits names limits that were reached though the command ended by
	// itself, such as "memory" when an allocation was refused and the program
	// dealt with it.
	LimitHits []string `json:"limit_hits,omitempty"`
	Usage     Usage    `json:"usage,omitzero"`
}

// Usage is what a sandbox used in all, as far as its host counts it.
type Usage struct {
	CPU        time.Duration `json:"cpu,omitempty"`         // processor time, in nanoseconds
	MemoryPeak int64         `json:"memory_peak,omitempty"` // bytes
	PidsPeak   int64         `json:"pids_peak,omitempty"`
}

// Exit codes with a meaning of their own; docs/cli.md has them all.
const (
	ExitTimeout = 124 // the command was ended by --timeout
	ExitBailey  = 125 // Bailey could not do it
	ExitLimit   = 137 // a limit ended it
)

// Code gives the exit code a command line reports for this end.
func (e End) Code() int {
	switch e.Reason {
	case EndExit, EndSignal, EndNotStarted, EndUser:
		return e.ExitCode
	case EndTimeout:
		return ExitTimeout
	case EndHostLost:
		return ExitBailey
	default:
		return ExitLimit
	}
}

// String describes the end in a few words, for people.
func (e End) String() string {
	switch e.Reason {
	case EndExit:
		return fmt.Sprintf("exited with status %d", e.ExitCode)
	case EndSignal:
		return "ended by " + e.Signal
	case EndTimeout:
		return "ended by its timeout"
	case EndOOM:
		s := fmt.Sprintf("ended by its memory limit of %s", size(e.Limit))
		if e.Victim != "" {
			s += " (victim " + e.Victim + ")"
		}
		return s
	case EndDiskFull:
		return fmt.Sprintf("ended by its disk limit of %s", size(e.Limit))
	case EndPids:
		return fmt.Sprintf("ended by its limit of %d processes", e.Limit)
	case EndOutput:
		return fmt.Sprintf("ended by its output limit of %s", size(e.Limit))
	case EndHostLost:
		return "lost with the process that held it"
	case EndUser:
		return "ended by its owner"
	case EndIdle:
		return "ended as it was idle"
	case EndLease:
		return "ended as its owner's lease was not renewed"
	case EndPromoted:
		return "ended as its sandbox moved to a stronger isolation level"
	case EndNotStarted:
		return "not started"
	default:
		return "ended: " + string(e.Reason)
	}
}

// size writes a number of bytes for people: in the largest unit that leaves a
// number of at least 1, with one decimal where there is one.
func size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	value, unit := float64(n), 0
	for value >= 1<<10 && unit < 4 {
		value, unit = value/(1<<10), unit+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + " " + [...]string{"", "KiB", "MiB", "GiB", "TiB"}[unit]
}
