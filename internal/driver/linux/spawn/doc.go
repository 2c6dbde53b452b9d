// Package spawn starts a process that sets itself up by a prepared list of
// system calls, without running Go, a shell or a second program on the way.
//
// A sandbox is built by its own first process: it joins namespaces, mounts a
// root, drops its rights and only then executes. Doing that in Go needs either
// a fork of the whole parent, which copies its page tables and costs
// milliseconds for every hundred megabytes of heap, or a second Go program,
// whose runtime takes a millisecond to start. Here the parent writes the set-up
// down as data, a Script, and a clone3(CLONE_VM|CLONE_VFORK) child works through
// it with a few machine instructions that touch no stack and call nothing. The
// child ends in execve or in _exit; the parent waits for one of the two.
//
// What the child does is fixed before it starts, so every decision is made in
// ordinary Go code that can be read and tested. Results of calls (such as
// descriptors) can be used by later calls, an expected errno can be ignored,
// and the first failure is reported by the step's name.
//
// The package may be used by the linux driver only. It needs amd64 or arm64.
// Package internal/guest/vfork is its smaller sister for use inside a sandbox,
// where clone3 is filtered and the memory of every instruction counts.
package spawn
