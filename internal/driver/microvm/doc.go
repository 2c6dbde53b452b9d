// Package microvm is the driver of the microVM level: programs have a kernel of their
// own in a virtual machine.
//
// A sandbox of this level is a cell: a container that another driver builds
// (Options.Outer), with a small root that holds the monitor, its libraries, a kernel
// and bailey-vmm, and nothing else but the sandbox's own root, at rootfs: the same
// overlay, layer and places as at the container level. bailey-vmm starts the monitor
// and serves the machine that folder (package internal/microvm/share). So what is known
// outside of layers, limits, listeners, snapshots and change sets holds here too, and what
// gets out of the machine is in a container.
//
// A machine's card, where it has one, ends in the monitor, which makes the connections that the
// machine asks for as its own, in the cell's network namespace: there all of them end at the
// listeners of the outlet.
//
// One command (`bailey run`) is started by bailey-vmm itself; a sandbox that stays is
// reached through bailey-cell.
package microvm
