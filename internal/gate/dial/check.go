package dial

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// check says why an address must not be dialled for a rule, or nil.
func (d *Dialer) check(a netip.Addr, own []netip.Addr, rule *policy.Rule) *act.Refused {
	class := d.class(a, own)
	switch {
	case class == Public:
		return nil
	case class == Metadata:
		return &act.Refused{Reason: "address_metadata", Why: "it leads to a metadata service, which no rule can open"}
	case class == Gate:
		return &act.Refused{Reason: "address_gate", Why: "it leads back to the gate"}
	case rule.AllowsAddress(a):
		return nil
	}
	return &act.Refused{Reason: "address_internal", Why: fmt.Sprintf(
		"it leads to an address that is not public (%s), and the rule names no internal range with it", class)}
}

// class is an address's class with this host's own addresses, which are told
// apart from what lies behind the same range only by asking the kernel.
func (d *Dialer) class(a netip.Addr, own []netip.Addr) string {
	// No test's classifier can open these.
	if c := Classify(a); c == Metadata || c == Gate {
		return c
	}
	if c := d.classify(a); c != Public {
		return c
	}
	if slices.Contains(own, a.Unmap()) {
		return Host
	}
	return Public
}

// hostAddresses gives the addresses of all interfaces of this host. They change,
// so they are asked for at each dial.
func hostAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	own := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				own = append(own, ip.Unmap())
			}
		}
	}
	return own, nil
}
