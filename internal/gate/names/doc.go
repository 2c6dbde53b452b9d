// Package names gives each name that a sandbox may speak to an address of its
// own, and answers the sandbox's DNS queries with them.
//
// A sandbox never learns a real address. A name that its policy knows gets one
// synthetic IPv4 and one synthetic IPv6 address, which are never given to
// another name of the lineage, so that a stream to the address is a stream to
// the name however long a process has kept it. Nothing is asked of any other
// name server: not for a name that policy knows (the gate resolves it when it
// dials), and not for one that it does not.
package names
