package names

import (
	"encoding/binary"
	"net/netip"
	"os"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/policy"
)

// The ranges: benchmark addresses (RFC 2544), which no public host has, and a
// range of unique local ones (RFC 4193).
var (
	Range4 = netip.MustParsePrefix("198.18.0.0/15")
	Range6 = netip.MustParsePrefix("fdba:11e4::/32")
)

// Synthetic tells whether an address lies in one of the ranges. Such a one is
// the gate's own or a name's, never a host's.
func Synthetic(a netip.Addr) bool {
	a = a.Unmap()
	return Range4.Contains(a) || Range6.Contains(a.WithZone(""))
}

// Gate tells whether an address is the gate's own.
func Gate(a netip.Addr) bool {
	a = a.Unmap()
	return a == driver.GateAddr4 || a == driver.GateAddr6
}

const (
	// reserved is how many addresses at the start of each range are the gate's.
	reserved = 16
	// MaxNames is how many names one lineage may ever have. A table of that
	// many takes about two megabytes.
	MaxNames = 16384
)

// Table joins the names of one lineage with their synthetic addresses. It only
// grows. The zero Table is empty and ready; it may be used by many goroutines.
type Table struct {
	mu    sync.RWMutex
	names []policy.Host // by address
	index map[string]uint32

	file   *os.File // that keeps it, or nil
	size   int64    // of the file
	broken error    // nothing more can be kept
}

// NewTable makes an empty table.
func NewTable() *Table { return &Table{} }

// Addresses gives the addresses of a name. A new name gets the next ones; when
// there were MaxNames names, the error is names_exhausted; where it cannot be
// kept, storage. A literal address is no name.
func (t *Table) Addresses(h policy.Host) (v4, v6 netip.Addr, err error) {
	if _, literal := h.Addr(); literal || h.IsZero() {
		return v4, v6, bailey.Errorf(bailey.CodeInternal, "give an address to a name", "", "%q is no name", h)
	}
	t.mu.RLock()
	i, ok := t.index[h.String()]
	t.mu.RUnlock()
	if !ok {
		switch i, ok, err = t.add(h); {
		case err != nil:
			return v4, v6, bailey.Errorf(bailey.CodeStorage, "give an address to "+h.String(), "free disk space, or see what the error says", "%w", err)
		case !ok:
			return v4, v6, bailey.Errorf("names_exhausted", "give an address to "+h.String(),
				"name the hosts in the policy, in place of a pattern", "this sandbox has looked up %d different names, which is the most it may", MaxNames)
		}
	}
	v4, v6 = addresses(i)
	return v4, v6, nil
}

func (t *Table) add(h policy.Host) (i uint32, ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.index[h.String()]; ok {
		return i, true, nil
	}
	if len(t.names) >= MaxNames {
		return 0, false, nil
	}
	if t.index == nil {
		t.index = map[string]uint32{}
	}
	i = uint32(len(t.names))
	if err := t.keep(i, h.String()); err != nil {
		return 0, false, err
	}
	t.names = append(t.names, h)
	t.index[h.String()] = i
	return i, true, nil
}

// addresses gives those of the name with index i.
func addresses(i uint32) (v4, v6 netip.Addr) {
	a4, a6 := Range4.Addr().As4(), Range6.Addr().As16()
	binary.BigEndian.PutUint32(a4[:], binary.BigEndian.Uint32(a4[:])+reserved+i)
	binary.BigEndian.PutUint32(a6[12:], reserved+i)
	return netip.AddrFrom4(a4), netip.AddrFrom16(a6)
}

// Lookup gives the name behind a synthetic address.
func (t *Table) Lookup(a netip.Addr) (policy.Host, bool) {
	var i uint32
	switch a = a.Unmap(); {
	case Range4.Contains(a):
		a4, base := a.As4(), Range4.Addr().As4()
		i = binary.BigEndian.Uint32(a4[:]) - binary.BigEndian.Uint32(base[:])
	case a.Zone() == "" && Range6.Contains(a):
		a16 := a.As16()
		if binary.BigEndian.Uint64(a16[4:]) != 0 { // the 64 bits between the range and the last 32
			return policy.Host{}, false
		}
		i = binary.BigEndian.Uint32(a16[12:])
	default:
		return policy.Host{}, false
	}
	if i < reserved {
		return policy.Host{}, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if i -= reserved; int64(i) >= int64(len(t.names)) {
		return policy.Host{}, false
	}
	return t.names[i], true
}

// Len is how many names there are.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.names)
}
