package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// maxSamples bounds the requests that two policies are compared by.
const maxSamples = 400_000

// words are what stands for each kind of word in samples.
var words = map[string]string{
	"name": "any-name", "scope": "@any-scope", "scoped": "@any-scope%2Fany-name", "version": "1.0.0", "file": "any-file-1.0.tar.gz",
	"go": "any-name", "go@version": "any-name@v1.0.0", "digest": "sha256:" + strings.Repeat("0", 64), "reference": "latest", "hex": "0a", "int": "8",
}

// sampler collects, by host, what the rules of some policies tell apart.
type sampler struct {
	hosts map[Host]*facets
	order []Host
}

type facets struct {
	ports   []uint16
	methods []string
	paths   []string
	queries []string
}

// samples gives requests, one for every kind that the rules of the policies
// tell apart: of each host or address a rule names or a wildcard stands for,
// each port, method, path, and query.
func samples(policies ...*Policy) (out []Request, full bool) {
	s := &sampler{hosts: map[Host]*facets{}}
	for _, p := range policies {
		for _, r := range p.rules {
			for _, h := range r.hosts {
				for _, host := range h.samples() {
					s.host(host)
				}
			}
			for _, a := range r.addresses {
				s.host(Host{addr: a.Addr()})
				s.host(Host{addr: lastAddr(a)})
			}
		}
	}
	for _, p := range policies {
		for _, r := range p.rules {
			for _, h := range s.order {
				if r.has(h) {
					s.hosts[h].add(r)
				}
			}
		}
	}
	slices.SortFunc(s.order, func(a, b Host) int { return cmp.Compare(a.String(), b.String()) })
	for _, h := range s.order {
		out = s.hosts[h].requests(h, out)
		if len(out) > maxSamples {
			return out, true
		}
	}
	return out, false
}

func (s *sampler) host(h Host) {
	if s.hosts[h] == nil {
		s.hosts[h] = &facets{
			ports: []uint16{80, 443, 8443}, methods: []string{"GET", "POST", "DELETE"}, paths: []string{"/", "/any"}, queries: []string{"", "any"},
		}
		s.order = append(s.order, h)
	}
}

// samples gives names for a pattern: the name itself, or names below it.
func (p hostPattern) samples() []Host {
	switch p.wild {
	case exact:
		return []Host{p.name}
	case oneMore:
		return []Host{{name: "any." + p.name.name}}
	}
	return []Host{{name: "any." + p.name.name}, {name: "any.any." + p.name.name}}
}

func (r *Rule) has(h Host) bool {
	if a, literal := h.Addr(); literal {
		return containsAddr(r.addresses, a)
	}
	return slices.ContainsFunc(r.hosts, func(p hostPattern) bool { return p.matches(h) })
}

func (f *facets) add(r *Rule) {
	for _, h := range r.hosts {
		if h.port != 0 {
			f.ports = appendNew(f.ports, h.port)
		}
	}
	for _, p := range r.ports {
		f.ports = appendNew(appendNew(f.ports, p.from), p.to)
	}
	for _, m := range r.methods {
		f.methods = appendNew(f.methods, m)
	}
	for i := range r.paths {
		f.paths = appendNew(f.paths, r.paths[i].sample())
	}
	for _, q := range r.query {
		f.queries = appendNew(f.queries, q)
	}
}

func appendNew[T comparable](list []T, x T) []T {
	if slices.Contains(list, x) {
		return list
	}
	return append(list, x)
}

// sample gives a path that fits.
func (p *pathPattern) sample() string {
	var b strings.Builder
	for _, s := range p.segments {
		b.WriteByte('/')
		switch {
		case s.kind != "":
			b.WriteString(words[s.kind])
		case s.many:
			b.WriteString("any/any")
		case s.glob != nil:
			b.WriteString(strings.Join(s.glob, "any"))
		default:
			b.WriteString(s.literal)
		}
	}
	return b.String()
}

// requests appends every combination for one host.
func (f *facets) requests(h Host, out []Request) []Request {
	for _, port := range f.ports {
		to := At(h, port)
		out = append(out, Request{Stage: Connect, To: to, Scheme: TCP, BodySize: -1})
		for _, scheme := range []Scheme{HTTP, HTTPS} {
			for _, method := range f.methods {
				for _, path := range f.paths {
					for _, q := range f.queries {
						r := Request{Stage: Head, To: to, Scheme: scheme, Method: method, Path: path}
						if q != "" {
							key, value, _ := strings.Cut(q, "=")
							r.Query = map[string][]string{key: {value}}
						}
						out = append(out, r)
					}
				}
			}
			out = append(out, Request{Stage: Head, To: to, Scheme: scheme, Method: "GET", Path: "/", WebSocket: true})
			if len(out) > maxSamples {
				return out
			}
		}
	}
	return out
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b) // of the same length
	return a
}
