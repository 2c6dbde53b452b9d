// Package act is one outbound act of a sandbox, from the first byte to its
// record: the seam between the parts of the gate that speak protocols (names,
// streams, web) and the box, which knows the sandbox's policy, counters,
// approvals, secrets and audit log.
package act
