package doctor

import (
	"github.com/bailey-sandbox/bailey"
)

// Status is how a check came out.
type Status string

// The statuses.
const (
	OK      Status = "ok"      // it is there and works
	Warn    Status = "warn"    // Bailey works, but something will be missing
	Missing Status = "missing" // it is not there, and something needs it
	Unknown Status = "unknown" // it could not be tried
	Info    Status = "info"    // a fact, neither good nor bad
)

// Result is one thing that was looked at.
type Result struct {
	Name   string `json:"name"`  // stable: other programs may look for it
	Title  string `json:"title"` // for people
	Status Status `json:"status"`
	Value  string `json:"value,omitempty"` // what was found, in a few words
	Why    string `json:"why,omitempty"`   // the reason, where Status needs one
	Fix    []Step `json:"fix,omitempty"`   // what to do, in order
}

// Step is one thing that a person can do about a result.
type Step struct {
	Text    string `json:"text"`              // what to do and what it brings
	Command string `json:"command,omitempty"` // what to type, one or more lines
}

// Level is one isolation level on this host.
type Level struct {
	Level     bailey.Isolation `json:"level"`
	Available bool             `json:"available"`
	Why       string           `json:"why"`
	Fix       []Step           `json:"fix,omitempty"`
}

// Report is what [Check] found.
type Report struct {
	Version string   `json:"version"` // of Bailey
	System  string   `json:"system"`  // the operating system's name and version
	Kernel  string   `json:"kernel"`
	Arch    string   `json:"arch"`
	Root    bool     `json:"root"` // asked by root
	Levels  []Level  `json:"levels"`
	Results []Result `json:"results"`
}

// ExitCode is 0 if at least the process level works, else 1.
func (r Report) ExitCode() int {
	for _, l := range r.Levels {
		if l.Available && l.Level >= bailey.IsolationProcess {
			return 0
		}
	}
	return 1
}

// Result gives the result of that name, or one with status Unknown.
func (r Report) Result(name string) Result {
	for _, res := range r.Results {
		if res.Name == name {
			return res
		}
	}
	return Result{Name: name, Status: Unknown}
}
