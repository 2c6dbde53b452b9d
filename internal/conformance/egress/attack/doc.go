// Attack is what the egress suite runs inside a sandbox: cases by id, one after
// the other. It is one static program, so that it needs nothing of the sandbox
// but itself and the name server that resolv.conf names, and can be run anywhere
// else for comparison.
//
//	attack SEED CASE...
//	attack get URL [HEADER]    a plain client, for comparison with others
//
// Around each case it asks the marker host for /begin/CASE and /end/CASE, so
// that both the fake internet and the audit log show what belongs to the case. In
// a case it makes acts that must not succeed, with the case's bad canary in them,
// and twins that must, with the good one. Whether something got out is seen where
// it was aimed; what is printed, a JSON object a case, says only how many acts
// were made, how the twins ended and what came in, for the suite to look through.
package main
