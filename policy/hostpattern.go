package policy

import (
	"fmt"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// wild says what stands before the name of a host pattern.
type wild int

const (
	exact   wild = iota
	oneMore      // "*.": one label
	anyMore      // "**.": one or more labels
)

// hostPattern is an entry of a rule's hosts.
type hostPattern struct {
	wild wild
	name Host   // without the wildcard
	port uint16 // 0: the rule says
}

// parseHostPattern reads NAME, *.NAME or **.NAME, each with :PORT or without.
func parseHostPattern(s string) (hostPattern, error) {
	var p hostPattern
	host := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") && strings.Count(s, ":") == 1 {
		port, err := parsePort(s[i+1:])
		if err != nil {
			return p, fmt.Errorf("the port of %q: %w", s, err)
		}
		host, p.port = s[:i], port
	}
	switch {
	case strings.HasPrefix(host, "**."):
		p.wild, host = anyMore, host[3:]
	case strings.HasPrefix(host, "*."):
		p.wild, host = oneMore, host[2:]
	}
	if strings.Contains(host, "*") {
		if host == "*" || host == "**" {
			return p, fmt.Errorf("%q would be every host: name the hosts that are needed", s)
		}
		return p, fmt.Errorf("the wildcard of %q is in the wrong place: only a leading *. or **. is one", s)
	}
	h, err := ParseHost(host)
	if err != nil {
		return p, err
	}
	if _, literal := h.Addr(); literal {
		return p, fmt.Errorf("%q is an address: put it under addresses", s)
	}
	p.name = h
	if p.wild != exact {
		err = tooBroad(h.String())
	}
	return p, err
}

// tooBroad refuses wildcards below names under which anybody can have one:
// the public suffixes, those of companies (github.io) too.
func tooBroad(base string) error {
	suffix, _ := publicsuffix.PublicSuffix(base)
	below, _ := publicsuffix.PublicSuffix("a." + base)
	if suffix == base || below == "a."+base {
		return fmt.Errorf("a wildcard below %s would be names of anybody: it is a public suffix; name the hosts that are needed", base)
	}
	return nil
}

// matches tells whether the pattern stands for a name. It is the plain form of
// what the index does.
func (p *hostPattern) matches(h Host) bool {
	if _, literal := h.Addr(); literal {
		return false
	}
	base := p.name.name
	if p.wild == exact {
		return h.name == base
	}
	// One byte of a label at least, and the dot.
	rest := len(h.name) - len(base) - 1
	if rest < 1 || h.name[rest] != '.' || h.name[rest+1:] != base {
		return false
	}
	return p.wild == anyMore || strings.IndexByte(h.name[:rest], '.') < 0
}

func (p hostPattern) String() string {
	s := [...]string{"", "*.", "**."}[p.wild] + p.name.String()
	if p.port != 0 {
		s = fmt.Sprintf("%s:%d", s, p.port)
	}
	return s
}

// overlaps tells that there is a name that both stand for, on some port.
func (p hostPattern) overlaps(q hostPattern) bool {
	if p.port != 0 && q.port != 0 && p.port != q.port {
		return false
	}
	switch {
	case p.wild == exact:
		return q.matches(p.name)
	case q.wild == exact:
		return p.matches(q.name)
	case p.name == q.name:
		return true
	}
	return p.wild == anyMore && strings.HasSuffix(q.name.name, "."+p.name.name) ||
		q.wild == anyMore && strings.HasSuffix(p.name.name, "."+q.name.name)
}
