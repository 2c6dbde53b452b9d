package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// index finds the rules that have a host, in the order of the document.
type index struct {
	names     [3]map[string][]entry // by wild, then name
	addresses map[netip.Prefix][]entry
	lengths   []netip.Prefix // one prefix of each length and family in use
}

// entry is a rule with what lets most of many rules for one host be passed
// over without looking at them.
type entry struct {
	rule   int32
	denies bool
	last   byte   // of prefix, so that most are told apart without following it
	prefix string // how all paths begin that the rule has; "" when it has any
}

// skips tells that the rule cannot stand for a request with this path.
func (e *entry) skips(path string) bool {
	n := len(e.prefix)
	return n > 0 && !e.denies && (n > len(path) || path[n-1] != e.last || path[:n] != e.prefix)
}

func newIndex(rules []*Rule) index {
	x := index{addresses: map[netip.Prefix][]entry{}}
	for w := range x.names {
		x.names[w] = map[string][]entry{}
	}
	for i, r := range rules {
		e := entry{rule: int32(i), denies: r.Action == Deny, prefix: r.pathPrefix()}
		if n := len(e.prefix); n > 0 {
			e.last = e.prefix[n-1]
		}
		for _, p := range r.hosts {
			add(x.names[p.wild], p.name.name, e)
		}
		for _, p := range r.addresses {
			add(x.addresses, p, e)
			if !slices.ContainsFunc(x.lengths, func(l netip.Prefix) bool {
				return l.Bits() == p.Bits() && l.Addr().BitLen() == p.Addr().BitLen()
			}) {
				x.lengths = append(x.lengths, p)
			}
		}
	}
	return x
}

// pathPrefix gives what all patterns of the rule begin with.
func (r *Rule) pathPrefix() string {
	if len(r.paths) == 0 {
		return ""
	}
	prefix := r.paths[0].prefix
	for _, p := range r.paths[1:] {
		for !strings.HasPrefix(p.prefix, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return prefix
}

func add[K comparable](m map[K][]entry, k K, e entry) {
	if list := m[k]; len(list) == 0 || list[len(list)-1].rule != e.rule {
		m[k] = append(list, e)
	}
}

// lookup gives the entries for h, by their place. buf is used where more than
// one list has to be joined.
func (x *index) lookup(h Host, buf []entry) []entry {
	if a, literal := h.Addr(); literal {
		for _, l := range x.lengths {
			if l.Addr().BitLen() != a.BitLen() {
				continue
			}
			p, _ := a.Prefix(l.Bits()) // the length fits the family
			buf = append(buf, x.addresses[p]...)
		}
		return ordered(buf)
	}
	only := x.names[exact][h.name]
	rest := h.name
	for depth := 0; ; depth++ {
		_, parent, found := strings.Cut(rest, ".")
		if !found {
			break
		}
		if depth == 0 {
			buf = append(buf, x.names[oneMore][parent]...)
		}
		buf = append(buf, x.names[anyMore][parent]...)
		rest = parent
	}
	if len(buf) == 0 {
		return only
	}
	return ordered(append(buf, only...))
}

func ordered(list []entry) []entry {
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.rule, b.rule) })
	return slices.CompactFunc(list, func(a, b entry) bool { return a.rule == b.rule })
}
