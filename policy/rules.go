package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxRules bounds a policy; many more than anybody wrote.
const maxRules = 100_000

// portRange is one port or several, both ends included.
type portRange struct{ from, to uint16 }

// compileRules fills p.rules.
func (p *Policy) compileRules(docs []ruleDoc) error {
	if len(docs) > maxRules {
		return &Error{At: "egress.rules", Why: fmt.Sprintf("there are more than %d rules", maxRules)}
	}
	names := map[string]int{}
	for i, d := range docs {
		at := fmt.Sprintf("egress.rules[%d]", i)
		r, err := d.compile(i, at)
		if err != nil {
			return err
		}
		if first, twice := names[r.Name]; twice {
			return &Error{d.line, at + ".name", fmt.Sprintf("%q is the name of egress.rules[%d] already", r.Name, first), "give each rule its own name"}
		}
		names[r.Name] = i
		p.rules = append(p.rules, r)
	}
	return nil
}

func (d *ruleDoc) compile(i int, at string) (*Rule, error) {
	fail := func(field, why, fix string) error { return &Error{d.line, join(at, field), why, fix} }
	r := &Rule{Name: d.Name, Description: d.Description, PlainSecrets: d.PlainSecrets, WebSocket: d.WebSocket, pinned: d.Pinned}
	if r.Name == "" {
		r.Name = fmt.Sprintf("egress[%d]", i)
	}
	switch d.Action {
	case "", "allow":
		r.Action = Allow
	case "deny":
		r.Action = Deny
	case "ask":
		r.Action = Ask
	default:
		return nil, fail("action", "there is no action "+strconv.Quote(d.Action), "write allow, deny or ask")
	}
	switch Scheme(d.Protocol) {
	case "", HTTP, HTTPS, TCP:
		r.Protocol = Scheme(d.Protocol)
	default:
		return nil, fail("protocol", "there is no protocol "+strconv.Quote(d.Protocol), "write http, https or tcp, or leave it out for http and https")
	}
	switch d.TLS {
	case "", "terminate":
	case "splice":
		r.TLS = Splice
	default:
		return nil, fail("tls", "there is no TLS mode "+strconv.Quote(d.TLS), "write terminate or splice")
	}
	if r.Protocol == TCP {
		if d.TLS != "" {
			return nil, fail("tls", "a tcp rule passes streams on as they are", "remove tls")
		}
		r.TLS = Splice
	}
	for j, s := range d.Hosts {
		h, err := parseHostPattern(s)
		if err != nil {
			return nil, fail(fmt.Sprintf("hosts[%d]", j), err.Error(), "")
		}
		if h.wild == exact && isMetadata(h.name) && r.Action != Deny {
			return nil, fail(fmt.Sprintf("hosts[%d]", j), s+" is a cloud's metadata service, which is never reachable", "remove it")
		}
		r.hosts = append(r.hosts, h)
	}
	var err error
	if r.addresses, err = parsePrefixes(d.Addresses); err != nil {
		return nil, fail("addresses", err.Error(), "")
	}
	for j, a := range r.addresses {
		if a.IsSingleIP() && metadataAddress(a.Addr()) && r.Action != Deny {
			return nil, fail(fmt.Sprintf("addresses[%d]", j), a.Addr().String()+" is a cloud's metadata service, which is never reachable", "remove it")
		}
	}
	if r.Internal, err = parsePrefixes(d.Internal); err != nil {
		return nil, fail("internal", err.Error(), "")
	}
	if d.Ports != nil {
		r.ports = []portRange{}
	}
	for j, s := range d.Ports {
		pr, err := parsePortRange(s)
		if err != nil {
			return nil, fail(fmt.Sprintf("ports[%d]", j), err.Error(), "")
		}
		r.ports = append(r.ports, pr)
	}
	if d.Methods != nil {
		r.methods = []string{}
	}
	for j, m := range d.Methods {
		if !isToken(m) {
			return nil, fail(fmt.Sprintf("methods[%d]", j), strconv.Quote(m)+" is no method", "write GET, POST …")
		}
		if strings.ToUpper(m) != m {
			return nil, fail(fmt.Sprintf("methods[%d]", j), "methods are case-sensitive", "write "+strings.ToUpper(m))
		}
		r.methods = append(r.methods, m)
	}
	if d.Paths != nil {
		r.paths = []pathPattern{}
	}
	for j, s := range d.Paths {
		pp, err := parsePathPattern(s)
		if err != nil {
			return nil, fail(fmt.Sprintf("paths[%d]", j), err.Error(), "")
		}
		r.paths = append(r.paths, pp)
	}
	if d.Query != nil {
		r.query = append(queryRule{}, d.Query...)
	}
	if d.When != "" {
		if r.when, err = compileCondition(d.When); err != nil {
			return nil, fail("when", err.Error(), "")
		}
	}
	if d.Secret != "" && d.Secrets != nil {
		return nil, fail("secret", "secret and secrets are both there", "keep secrets")
	}
	r.Secrets = slices.Clone(d.Secrets)
	if d.Secret != "" {
		r.Secrets = []string{d.Secret}
	}
	if r.Limits, err = d.Limits.compile(at + ".limits"); err != nil {
		err.(*Error).Line = d.line
		return nil, err
	}
	return r, d.checkTogether(r, fail)
}

// wildcards tells that the rule has some, whose names limits.leak bounds.
func (r *Rule) wildcards() bool {
	return slices.ContainsFunc(r.hosts, func(p hostPattern) bool { return p.wild != exact })
}

// checkTogether refuses rules that cannot mean what they say.
func (d *ruleDoc) checkTogether(r *Rule, fail func(field, why, fix string) error) error {
	opaque := r.TLS == Splice
	what, fix := "TLS that is spliced is not looked into", "remove it, or tls: splice"
	if r.Protocol == TCP {
		what, fix = "a tcp stream is not looked into", "remove it, or choose protocol http or https"
	}
	if opaque && r.Action != Deny || r.Protocol == TCP {
		for _, f := range []struct {
			name  string
			there bool
		}{
			{"methods", d.Methods != nil}, {"paths", d.Paths != nil}, {"query", d.Query != nil}, {"when", d.When != ""},
			{"secrets", len(r.Secrets) > 0}, {"websocket", d.WebSocket}, {"limits.leak", d.Limits.Leak != "" && !r.wildcards()}, {"plain_secrets", d.PlainSecrets}, {"pinned", d.Pinned},
		} {
			if f.there {
				return fail(f.name, what, fix)
			}
		}
	}
	if r.TLS == Splice && r.Protocol == HTTP {
		return fail("tls", "plain HTTP has no TLS to splice", "remove tls, or choose protocol https")
	}
	if r.Protocol == TCP && r.Action != Deny && d.Ports == nil && !slices.ContainsFunc(r.hosts, func(h hostPattern) bool { return h.port != 0 }) {
		return fail("ports", "a tcp rule has no default port", "name the ports")
	}
	if r.Action == Deny {
		for _, f := range []struct {
			name  string
			there bool
		}{
			{"tls", d.TLS != ""}, {"query", d.Query != nil}, {"secrets", len(r.Secrets) > 0}, {"plain_secrets", d.PlainSecrets}, {"pinned", d.Pinned},
			{"websocket", d.WebSocket}, {"limits", d.Limits != limitsDoc{}}, {"internal", d.Internal != nil},
		} {
			if f.there {
				return fail(f.name, "it says how something is allowed, and this rule denies", "remove it")
			}
		}
		for _, f := range []struct {
			name  string
			empty bool
		}{
			{"hosts", len(d.Hosts)+len(d.Addresses) == 0}, {"ports", d.Ports != nil && len(d.Ports) == 0},
			{"methods", d.Methods != nil && len(d.Methods) == 0}, {"paths", d.Paths != nil && len(d.Paths) == 0},
		} {
			if f.empty {
				return fail(f.name, "it is empty, so that this rule denies nothing", "say what is denied, or remove the rule")
			}
		}
	}
	return nil
}

// parsePrefixes reads addresses and ranges in CIDR notation (RFC 4632).
func parsePrefixes(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range list {
		p, err := parsePrefix(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		h, err := ParseHost(s)
		if err != nil {
			return netip.Prefix{}, err
		}
		a, literal := h.Addr()
		if !literal {
			return netip.Prefix{}, fmt.Errorf("%q is no address: names go under hosts", s)
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, fmt.Errorf("%q is no range: write address/bits", s)
	case p.Bits() == 0:
		return p, fmt.Errorf("%q is every address there is: name the ranges that are needed", s)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q is IPv4 in IPv6: write it as IPv4", s)
	case p.Masked() != p:
		return p, fmt.Errorf("%q has bits behind the range: write %s, or one address", s, p.Masked())
	}
	return p, nil
}

func parsePortRange(s string) (portRange, error) {
	from, to, several := strings.Cut(s, "-")
	if !several {
		to = from
	}
	a, err := parsePort(from)
	if err != nil {
		return portRange{}, err
	}
	b, err := parsePort(to)
	if err == nil && a > b {
		err = fmt.Errorf("%q ends before it begins", s)
	}
	return portRange{a, b}, err
}

// isToken tells that s is a method's name (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}

// compile reads numbers and sizes.
func (d limitsDoc) compile(at string) (RuleLimits, error) {
	var l RuleLimits
	for _, f := range []struct {
		name, text string
		to         *int64
		size       bool
	}{{"requests", d.Requests, &l.Requests, false}, {"upload", d.Upload, &l.Upload, true}, {"leak", d.Leak, &l.Leak, true}} {
		if f.text == "" {
			continue
		}
		n, err := parseSize(f.text, f.size)
		if err != nil {
			return l, &Error{At: join(at, f.name), Why: err.Error(), Fix: "0 is not a limit: write a number above it"}
		}
		*f.to = n
	}
	return l, nil
}

// parseSize reads a count, or a size with K, M, G or T (powers of 1024). Zero
// is refused: it would read as no limit.
func parseSize(s string, units bool) (int64, error) {
	digits, shift := s, 0
	if units {
		digits = strings.TrimSuffix(strings.TrimSuffix(s, "B"), "i")
		if i := strings.IndexAny("KMGT", lastByte(digits)); i >= 0 {
			digits, shift = digits[:len(digits)-1], 10*(i+1)
		} else {
			digits = s
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > (1<<62)>>shift {
		return 0, fmt.Errorf("%q is no number above 0", s)
	}
	return n << shift, nil
}

func lastByte(s string) string {
	if s == "" {
		return "-"
	}
	return s[len(s)-1:]
}
