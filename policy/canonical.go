package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Canonical gives the document in its one form, as JSON: profiles are expanded,
// names canonical, defaults left out. Parse reads it and gives the same digest.
func (p *Policy) Canonical() []byte {
	d := p.document
	if d.Mode == string(Enforce) {
		d.Mode = ""
	}
	d.AskTimeout = ""
	if p.session.AskTimeout != 0 {
		d.AskTimeout = p.session.AskTimeout.String()
	}
	d.Egress.Default = ""
	d.Egress.Limits = p.limits.canonical()
	d.Egress.Rules = slices.Clone(d.Egress.Rules)
	for i := range d.Egress.Rules {
		d.Egress.Rules[i] = d.Egress.Rules[i].canonical(p.rules[i])
	}
	// A group of lists that are all empty says as much as none.
	for _, list := range []*[]string{&d.Paths.AllowRead, &d.Paths.AllowWrite, &d.Paths.DenyRead, &d.Paths.DenyWrite, &d.Env.Pass} {
		if len(*list) == 0 {
			*list = nil
		}
	}
	if len(d.Env.Set) == 0 {
		d.Env.Set = nil
	}
	if len(d.Egress.Rules) == 0 {
		d.Egress.Rules = nil
	}
	d.Secrets = maps.Clone(d.Secrets)
	for key, s := range d.Secrets {
		c := p.secrets[key]
		s.Secret, s.In, s.Format = c.Name, c.In, c.Format
		if s.Hosts != nil {
			s.Hosts = c.Hosts
		}
		d.Secrets[key] = s
	}
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // it is strings and numbers
	}
	return b
}

func (d ruleDoc) canonical(r *Rule) ruleDoc {
	d.Name = r.Name
	if r.Action == Allow {
		d.Action = ""
	}
	if r.TLS == Terminate {
		d.TLS = ""
	}
	if d.Hosts != nil {
		d.Hosts = patternStrings(r.hosts)
	}
	if d.Addresses != nil {
		d.Addresses = prefixStrings(r.addresses)
	}
	if d.Internal != nil {
		d.Internal = prefixStrings(r.Internal)
	}
	if d.Ports != nil {
		d.Ports = []string{}
		for _, p := range r.ports {
			d.Ports = append(d.Ports, p.String())
		}
	}
	if d.Paths != nil {
		d.Paths = []string{}
		for _, p := range r.paths {
			d.Paths = append(d.Paths, p.text)
		}
	}
	if d.Secret != "" {
		d.Secret, d.Secrets = "", []string{d.Secret}
	}
	d.Limits = r.Limits.canonical()
	return d
}

func (p portRange) String() string {
	if p.from == p.to {
		return fmt.Sprint(p.from)
	}
	return fmt.Sprintf("%d-%d", p.from, p.to)
}

func (l RuleLimits) canonical() limitsDoc {
	text := func(n int64) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	return limitsDoc{Requests: text(l.Requests), Upload: text(l.Upload), Leak: text(l.Leak)}
}

func prefixStrings(list []netip.Prefix) []string {
	out := make([]string, 0, len(list))
	for _, p := range list {
		if p.IsSingleIP() {
			out = append(out, p.Addr().String())
		} else {
			out = append(out, p.String())
		}
	}
	return out
}
