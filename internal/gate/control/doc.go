// Package control is the wire between whoever starts a gate and the gate's own
// process: open a sandbox's way out, hand its listeners over, change its
// policy, take a secret back, close; and from the gate, denials and questions.
//
// It is a connected unix stream socket, descriptor 3 of the gate's process. A
// message is a 32-bit big-endian length and that many bytes of one JSON object;
// descriptors go with its first byte (SCM_RIGHTS). Lengths and numbers of
// descriptors are bounded, unknown fields are errors, and after anything that
// makes no sense the connection is over: each end takes the other for broken,
// not for hostile, but the gate reads what sandboxes send and may be taken over.
//
// When the connection ends, whichever end is left ends everything that went
// through it. It is linked by the command line, so it knows nothing of TLS,
// HTTP or policy.
package control
