// Package egress is the egress suite: attempts to get bytes out of a sandbox past
// its gate, and real programs that go through it.
//
// The program under test is the one that people get: bailey starts its sandbox and
// the gate's process, in namespaces where package internet is all there is beyond
// the host. Package attack is the one static program that runs inside, with the
// cases of [Cases] by id.
//
// A case passes by what is seen where it was aimed (see [Judge]): the fake internet
// has nowhere seen its bad canary, in any encoding, no connection has come to an
// address that no allowed name has, and no frame but those of TCP and of the
// host's resolver; every allowed twin has been answered; and the audit log holds
// one denial with a reason for each act that was refused. The control run makes the
// same attacks without Bailey, where the canaries must arrive: a case that fails
// there would prove nothing.
//
// Cases that need something else than one sandbox with one policy, and real
// clients, are tests of their own beside them.
package egress
