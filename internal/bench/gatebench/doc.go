// Package gatebench is `bailey bench gate`: it measures the gate beside other
// programs that stand between a client and a server, on this machine, in one run.
//
// The gate is the real one: `baileyd gate` as a process that has given up its
// rights, with the audit log, sealed secrets and a policy of several rules,
// behind listeners that a network namespace redirects all connections to, as in
// a sandbox. All programs have the same client and the same server, with TLS on
// both sides where there is TLS; each has its defaults but for what the work
// itself needs. They take turns, and values are compared turn by turn, so that
// what else the machine does meets all of them. What is not installed is listed
// as not measured.
//
// Everything runs in network and mount namespaces of its own, where the names of
// the bench lead to loopback, and keeps its files in one folder that is removed.
package gatebench
