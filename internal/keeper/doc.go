// Package keeper is what outlives the daemon: the small process that starts
// baileyd, starts it again when it dies, reaps the sandboxes' first processes that
// a dead daemon leaves behind, and holds the descriptors without which they would
// end. Server is that process's side, Client the daemon's, over a unix socket that
// the daemon inherits.
//
// The keeper knows no policy and reads nothing that a sandbox can write: what it
// parses are the daemon's requests, and files that it has written itself. It has
// two goroutines whatever it holds.
//
// # When somebody dies
//
// The daemon: its children become the keeper's, which is a child subreaper. What
// the keeper holds keeps them alive. The next daemon asks what there is.
//
// The keeper: the daemon's Client is Done. It has to close what it holds of its
// sandboxes and leave; then the last descriptor of each lease is closed, and the
// sandbox's first process ends it. One that is frozen cannot do that: it stays
// frozen, so that nothing of it gets out, until the daemon or the next one's sweep
// of control groups kills it.
//
// # Files
//
// All lie in the folder keeper of the data folder: lock, which the keeper has for
// as long as it lives, so that there is one; and ended/ID, the status of each
// sandbox whose first process the keeper has reaped, until it is dropped. A later
// keeper reads these: a status survives both of them.
//
// Nothing else on the host is touched but the daemon's process.
package keeper
