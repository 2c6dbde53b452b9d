// Package faults lets the fault suite stop Bailey at a named step, to kill it
// there. Only a build with the tag bailey_faults can be stopped; in every other
// build the functions do nothing and the compiler removes them.
//
// With the tag, BAILEY_FAULT names the step: a step of the parent stops this
// process by SIGSTOP before it is taken, and child:NAME makes the sandbox's
// first process stop itself after its step NAME.
package faults
