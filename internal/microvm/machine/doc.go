// Package machine runs one virtual machine: the monitor (QEMU's microvm), its
// memory, and what it is served by the process that runs it, its files. Command
// bailey-vmm is that process, in a cell of its own beside the monitor.
//
// The machine has a port on which bailey-init inside speaks to its owner, whose other
// end is a socket that the caller has; a port for files (package share); and, if asked
// for, a card behind which lies nothing but the monitor's own sockets, and so the
// network namespace that it runs in.
package machine
