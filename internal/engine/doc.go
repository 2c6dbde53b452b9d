// Package engine is what happens to sandboxes that stay: they are created, run
// commands, are paused, resumed, snapshotted, forked, they expire and are adopted
// by the next daemon.
//
// Every change is a row of package state before it is an act, so that a start
// after any death goes on or takes back. A sandbox is durable files, a policy and a
// record; what runs is one generation of it, an Instance of a driver, whose
// descriptors the keeper holds too. Sealing files, undoing, restoring and starting
// again after a loss are all the same: end the instance, rearrange layers, make
// another instance over them.
//
// It imports drivers, layers, store, audit and the gate's control wire; nobody
// below imports it.
package engine
