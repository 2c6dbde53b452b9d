// Package faults lets the fault suite stop Bailey at a named step, to kill it
// there. Only a build with the tag bailey_faults can be stopped; in every other
// build the functions do nothing and the compiler removes them.
//
// With the tag, BAILEY_FAULT names the step. A step of the parent stops this
// process by SIGSTOP before it is taken. child:N makes the sandbox's first process
// say so after its first N steps, by a byte on descriptor 3, and wait for one.
// SIGSTOP would not do: the first process of a PID namespace ignores its own.
// BAILEY_FAULT_LIST names a file to which the names of all steps are written, each
// with a NUL behind it.
package faults
