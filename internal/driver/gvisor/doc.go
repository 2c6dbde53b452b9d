// Package gvisor is the driver of the gVisor level: programs see a kernel of their
// own, gVisor's sentry, which is a program itself and needs little of the host's.
//
// A sandbox of this level is a cell: a container that another driver builds
// (Options.Outer), in which runsc and gVisor run. Where that driver would put the
// sandbox's root file system, the cell has a small one of its own, and the
// sandbox's lies at rootfs in it: the same overlay, layer and places, so that what
// is done with layers outside knows nothing of the level. What gVisor lets through
// ends at the cell's walls. Two boundaries stand behind each other:
//
//   - gVisor's: its kernel answers all system calls of the sandbox's programs;
//     system calls of its own go through a filter of its own.
//   - the container's: namespaces, ids that are nobody's, the control group, a filter
//     of system calls and, as the only way out, the listeners of the outlet.
//
// The container's walls are thinner for a cell than for a container, because runsc has
// to make namespaces and mounts in it: see driver.Cell.
//
// A sandbox's network is gVisor's own stack on a card whose other end lies with the
// listeners. One command runs as process 1 of the sandbox (`bailey run`); a sandbox
// that stays has bailey-init there, reached through bailey-cell.
package gvisor
