// Package gate is the way out of sandboxes: a [Server] holds a [Box] for each,
// and a box owns the sandbox's listeners, policy, counters, open streams and
// names. What speaks a protocol sees a box as [act.Box]: it begins an act, has
// it judged, and commits it to the audit log before a byte moves.
//
// The identity of a sandbox is the listener that a stream came through, never
// an address or anything that was sent.
package gate
