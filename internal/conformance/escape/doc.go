// Package escape is the escape suite: attempts to get out of a sandbox of the
// process and container levels, each with a proof that it would have worked.
//
// An Attempt names the walls that stop it. The suite makes the same sandbox
// twice: as everybody gets it, where the attempt must fail, and with exactly
// those walls left out, where it must succeed. An attempt that fails in both
// proves nothing and does not count. Where an attempt meets several walls,
// each of them is also shown to stop it alone.
//
// Whether an attempt succeeded is seen where it was aimed: a file of the host
// has changed, a listener of the host has received something, a process of the host
// is being traced, a descriptor has arrived that nobody inside should have. What
// the attacking program (package attack below) prints is never evidence. The only
// exceptions are calls whose effect no machine should suffer; they are marked
// as such, and their evidence is that the kernel went on to look at their
// arguments.
//
// The suite runs in outer namespaces of its own (see Outer), which are "the
// host" for every attempt: a network without an uplink, processes, queues and
// a host name that nobody else uses.
//
// The package makes sandboxes through the linux driver, and touches nothing of
// the host but folders it is given.
package escape
