package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Host is a canonical host name or literal address: lower case, A-labels, no
// final dot, no zone. Only ParseHost makes one, so that a name is spelt in one
// way wherever it is compared, looked up or dialled. The zero Host is none.
type Host struct {
	name string
	addr netip.Addr
}

// The bounds of RFC 1035, section 2.3.4: what fits into a DNS message.
const (
	maxName  = 253
	maxLabel = 63
)

// lookup maps a name as browsers do (UTS 46, non-transitional, with the rules
// of STD 3, joiners and bidirectional text), so that two spellings that look
// up the same name are one name, and look-alikes stay different.
var lookup = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.StrictDomainName(true),
	idna.CheckJoiners(true),
	idna.BidiRule(),
)

// ParseHost reads a host as a URL, an SNI or a SOCKS request gives it, with or
// without the brackets of an IPv6 address. One final dot is taken away, other
// scripts become A-labels, IPv4 in IPv6 becomes IPv4. Numbers that are no
// address in plain notation (2130706433, 0x7f.1, 127.1) are refused, since
// some resolvers take them for one; so are zones, user names, ports,
// underscores and everything else that is no letter, digit or dash.
func ParseHost(s string) (Host, error) {
	switch {
	case s == "":
		return Host{}, errors.New("the host is empty")
	case len(s) > 4*maxName:
		return Host{}, errors.New("the host is too long")
	case s[0] == '[' || strings.Contains(s, ":"):
		return parseIPv6(s)
	}
	name := strings.TrimSuffix(s, ".")
	if plainName(name) && !strings.Contains(name, "xn--") {
		if !endsInNumber(name) {
			return Host{name: name}, nil
		}
		a, err := netip.ParseAddr(s)
		if err != nil || !a.Is4() {
			return Host{}, fmt.Errorf("%q is a number, and no address in plain notation", s)
		}
		return Host{addr: a}, nil
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c == 0x7f {
			return Host{}, fmt.Errorf("the host %q has a space or control character in it", s)
		}
		if c < 0x80 && !nameByte(c|0x20) && !nameByte(c) {
			return Host{}, fmt.Errorf("the host %q has %q in it, which no host name has", s, c)
		}
	}
	mapped, err := lookup.ToASCII(s)
	if err != nil {
		return Host{}, fmt.Errorf("%q is no host name: %w", s, err)
	}
	mapped = strings.TrimSuffix(mapped, ".")
	switch {
	case !plainName(mapped):
		return Host{}, fmt.Errorf("%q is no host name: labels have 1 to %d letters, digits and inner dashes, a name at most %d characters", s, maxLabel, maxName)
	case endsInNumber(mapped):
		return Host{}, fmt.Errorf("%q is a number in disguise", s)
	}
	// What one round of mapping changes into something that a second round
	// changes again would be another name for whoever maps it next.
	if again, err := lookup.ToASCII(mapped); err != nil || again != mapped {
		return Host{}, fmt.Errorf("%q is no host name: it has no stable form", s)
	}
	return Host{name: mapped}, nil
}

func parseIPv6(s string) (Host, error) {
	in := s
	if s[0] == '[' {
		if s[len(s)-1] != ']' {
			return Host{}, fmt.Errorf("%q opens a bracket and does not close it", s)
		}
		in = s[1 : len(s)-1]
	}
	a, err := netip.ParseAddr(in)
	switch {
	case err != nil || !a.Is6():
		return Host{}, fmt.Errorf("%q is no IPv6 address, and no name has a colon or bracket", s)
	case a.Zone() != "":
		return Host{}, fmt.Errorf("%q has a zone, which means nothing outside of one machine", s)
	}
	return Host{addr: a.Unmap()}, nil
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.'
}

// plainName tells that a name is canonical as it stands. A-labels never are:
// the mapping has to confirm them.
func plainName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for start := 0; start <= len(s); {
		end := start
		for end < len(s) && s[end] != '.' {
			if !nameByte(s[end]) {
				return false
			}
			end++
		}
		label := s[start:end]
		if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		start = end + 1
	}
	return true
}

// endsInNumber tells that resolvers may take a name for an IPv4 address: its
// last label is one, decimal, octal or hexadecimal (WHATWG URL, "ends in a
// number"). No top-level domain is.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// String gives the canonical form; an IPv6 address has no brackets.
func (h Host) String() string {
	if h.addr.IsValid() {
		return h.addr.String()
	}
	return h.name
}

// Addr gives the address of a literal one.
func (h Host) Addr() (a netip.Addr, literal bool) { return h.addr, h.addr.IsValid() }

// IsZero tells that h is no host.
func (h Host) IsZero() bool { return h == Host{} }

// Authority is a host with a port, 1 to 65535; in a request of the name stage
// the port is 0. Only ParseAuthority and At make one.
type Authority struct {
	host Host
	port uint16
}

// ParseAuthority reads host[:port] (RFC 3986, section 3.2, without user
// information). A missing port is defaultPort; if that is 0 as well, it is an
// error. Ports are plain decimal: no sign, no leading zero, not empty.
func ParseAuthority(s string, defaultPort uint16) (Authority, error) {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port = s[:i], s[i+1:]
		if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
			return Authority{}, fmt.Errorf("%q is ambiguous: an IPv6 address stands in brackets", s)
		}
		n, err := parsePort(port)
		if err != nil {
			return Authority{}, fmt.Errorf("the port of %q: %w", s, err)
		}
		defaultPort = n
	}
	h, err := ParseHost(host)
	if err != nil {
		return Authority{}, err
	}
	if defaultPort == 0 {
		return Authority{}, fmt.Errorf("%q has no port", s)
	}
	return Authority{h, defaultPort}, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s != strconv.FormatUint(n, 10) {
		return 0, fmt.Errorf("%q is not a number from 1 to 65535", s)
	}
	return uint16(n), nil
}

// At joins a host and a port.
func At(h Host, port uint16) Authority { return Authority{h, port} }

// Host gives the host.
func (a Authority) Host() Host { return a.host }

// Port gives the port.
func (a Authority) Port() uint16 { return a.port }

// String gives host:port, with an IPv6 address in brackets.
func (a Authority) String() string {
	h := a.host.String()
	if a.host.addr.Is6() {
		h = "[" + h + "]"
	}
	return h + ":" + strconv.Itoa(int(a.port))
}
