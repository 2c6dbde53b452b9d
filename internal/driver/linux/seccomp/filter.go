//go:build linux

package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Options says how the filter of one sandbox differs from the usual one.
type Options struct {
	// NestedUserNS lets the sandbox make namespaces of its own, as nested
	// sandboxes, rootless container engines and browsers do: unshare, setns,
	// clone with namespace flags, clone3, the mount family, pivot_root,
	// sethostname and setdomainname are allowed, and what a process may do
	// with them is left to the kernel's checks of capabilities.
	NestedUserNS bool
	// PacketSockets allows sockets of AF_PACKET, with which a program that has a
	// network of its own sends and gets packets of a card that it has the rights over.
	PacketSockets bool
	// NoSetUID refuses to give a file the set-user-id bit: for a sandbox whose
	// files are the host's own, where such a program would lend its owner's
	// rights to everybody on the host. KeepOpenat2 leaves openat2, which a
	// filter cannot look into, to a sandbox whose first process needs it.
	NoSetUID, KeepOpenat2 bool
	// Omit names protections to leave out, as Protections lists them. It is
	// for the control runs of the escape suite, which show that an attempt
	// succeeds without the protection that stops it.
	Omit []string
}

// span is a range of system call numbers, both ends included, with one answer.
type span struct {
	first, last uint16
	act         action
}

// Filter gives the program for the architecture of this build. The slice is
// the caller's own. It fails with code usage when o.Omit has a name that
// Protections does not list, so that a control run cannot pass by a typing
// error, and with code isolation_unavailable on an architecture without tables.
func Filter(o Options) ([]unix.SockFilter, error) {
	if auditArch == 0 {
		return nil, bailey.Errorf(bailey.CodeIsolationUnavailable, "make the system call filter",
			"use a machine with an amd64 or arm64 processor", "this architecture has no filter tables")
	}
	for _, name := range o.Omit {
		if !slices.ContainsFunc(protections[:], func(p protection) bool { return p.name == name }) {
			return nil, bailey.Errorf(bailey.CodeUsage, "make the system call filter", "", "there is no protection %q to omit", name)
		}
	}

	// Every number up to newest gets its answer in acts; the program is made
	// from that. What is not in use there, and all above, does not exist.
	var acts [newest + 1]action
	for i := range acts {
		acts[i] = absent
	}
	for _, s := range mobySpans {
		for n := s.first; n <= s.last; n++ {
			acts[n] = s.act
		}
	}
	var rules ruleSet
	for i := range protections {
		p := &protections[i]
		on := !slices.Contains(o.Omit, p.name) && !(o.NestedUserNS && p.nested)
		for _, n := range p.calls {
			if int(n) > newest {
				continue // absent as everything newer than the profile
			}
			if on {
				acts[n] = refuse
			} else {
				acts[n] = allow
			}
		}
		if p.rule != nil {
			p.rule(on, &acts, &rules)
		}
	}
	if o.PacketSockets {
		allowPackets(&acts, &rules)
	}
	if o.NoSetUID {
		refuseSetUID(o.KeepOpenat2, &acts, &rules)
	}
	return assemble(acts[:], &rules, entry{
		arch:      auditArch,
		x32:       hasX32 && !slices.Contains(o.Omit, "x32"),
		allowX32:  hasX32 && slices.Contains(o.Omit, "x32"),
		otherABIs: slices.Contains(o.Omit, "other-abi"),
	}), nil
}
