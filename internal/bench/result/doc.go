// Package result holds what all benchmarks of Bailey tell in the same way: the
// machine, durations summed up, targets, and who was not measured. It reads
// /proc and starts programs for their versions, and nothing else.
package result
