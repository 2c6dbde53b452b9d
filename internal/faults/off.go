//go:build !bailey_faults

package faults

// Trace is called before each step of the parent.
func Trace(string) {}

// Child names the step of the sandbox's first process to stop after, or "".
func Child() string { return "" }
