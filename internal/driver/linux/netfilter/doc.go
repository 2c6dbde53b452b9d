// Package netfilter writes down the messages that turn a network namespace with
// only a loopback into one whose every way out ends at two listeners: routes
// that make all addresses the namespace's own, and nftables rules that redirect
// to the listeners and refuse what cannot be redirected.
//
// The messages are those of rtnetlink(7) and of nf_tables
// (linux/netfilter/nf_tables.h, nfnetlink.h). They are few and always the same
// but for a port, so they are written here rather than with a library: a child
// of package spawn sends them with plain system calls, and the command line
// links nothing for it. The package has no state and does no I/O.
package netfilter
