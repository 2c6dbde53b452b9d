package result

import (
	"fmt"
	"io"
)

// Target is what a measure is meant to show: Value, in the unit of Of, is at
// most Goal, or at least Goal with AtLeast. Without a goal it is only told, and met.
type Target struct {
	Of      string  `json:"of"`
	Goal    float64 `json:"goal,omitempty"`
	AtLeast bool    `json:"at_least,omitempty"`
	Value   float64 `json:"value"`
	Met     bool    `json:"met"`
}

// AtMost judges a value that is to be small. A value of nothing was not measured,
// so it meets no goal; added latencies may be below zero and do.
func AtMost(of string, value, goal float64) Target {
	return Target{Of: of, Goal: goal, Value: value, Met: goal == 0 || value != 0 && value <= goal}
}

// AtLeast judges a value that is to be large.
func AtLeast(of string, value, goal float64) Target {
	return Target{Of: of, Goal: goal, AtLeast: true, Value: value, Met: goal == 0 || value >= goal}
}

// Write shows a target in one line.
func (t Target) Write(w io.Writer) {
	if t.Goal == 0 {
		fmt.Fprintf(w, "  %s: %.3g\n", t.Of, t.Value)
		return
	}
	verdict, bound := "met", "at most"
	if !t.Met {
		verdict = "MISSED"
	}
	if t.AtLeast {
		bound = "at least"
	}
	fmt.Fprintf(w, "  %s: %.3g, %s %g: %s\n", t.Of, t.Value, bound, t.Goal, verdict)
}

// Missing is one that was not measured, and why.
type Missing struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}
