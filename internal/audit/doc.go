// Package audit is the one log of what was decided and done: append-only, each
// record chained to the one before it by hash, with signed checkpoints.
//
// A record is in the kernel when Append returns, so that it survives the death
// of this process, and on disk at most a second later. Several processes may
// append to one log. Whoever cannot append must not act.
package audit
