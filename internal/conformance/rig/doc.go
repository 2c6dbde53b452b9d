// Package rig lets the conformance suites drive the real program: it builds
// bailey with its fault points, gives each test a yard of its own (a workspace,
// a HOME and a data folder, owned by root or by an ordinary user), and counts
// what a run left on the machine.
//
// Only tests import it. It touches the temporary folder, the Go build cache, and
// processes that it started or that became its own when their parent died.
package rig
