package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Flags are what a person adds on the command line.
type Flags struct {
	// Allow are hosts, as in rules, or addresses and ranges, with :PORT or
	// without, after a scheme (http, https, ws, wss or tcp and ://) or none. A
	// port other than 80 and 443 without a scheme lets anything pass that is spoken
	// there. ws and wss are http and https with WebSockets.
	Allow []string
	// Profiles are names of profiles, also one part (registry-readonly/npm),
	// and behind @ the host, with :PORT or without, of one's own mirror.
	Profiles []string
	// Secrets are NAME@HOST[:PORT]: the secret NAME of the store goes to HOST,
	// as a placeholder in the variable NAME. If no other rule has the host, one
	// is added that allows it whole.
	Secrets []string
}

// FromFlags gives the policy of the flags alone.
func FromFlags(f Flags) (*Policy, error) { return Merge(nil, f) }

// Merge adds what flags say to p, which stays as it is and may be nil. They
// add rules of their own behind those that are there, so that what p denies
// stays denied, and what its rules decide stays decided by them. It is an error
// to add to a sealed policy.
func Merge(p *Policy, f Flags) (*Policy, error) {
	d := document{Version: 1}
	if p != nil {
		if p.sealed && len(f.Allow)+len(f.Profiles)+len(f.Secrets) > 0 {
			return nil, &Error{At: "sealed", Why: "the policy says that flags may not add to it", Fix: "leave out --allow, --profile and --secret, or change the policy"}
		}
		d = p.document
		d.Egress.Rules = slices.Clone(d.Egress.Rules)
		for i := range d.Egress.Rules {
			// Names by place would change their meaning when rules are joined.
			d.Egress.Rules[i].Name = p.rules[i].Name
		}
	}
	m := &merger{d: &d, secrets: map[string]secretDoc{}}
	for k, v := range d.Secrets {
		m.secrets[k] = v
	}
	bound, err := m.bind(f.Secrets)
	if err != nil {
		return nil, err
	}
	for _, s := range f.Allow {
		if err := m.allow(s, bound); err != nil {
			return nil, &Error{At: "--allow " + s, Why: err.Error()}
		}
	}
	for _, s := range f.Profiles {
		if err := m.profile(s); err != nil {
			return nil, &Error{At: "--profile " + s, Why: err.Error()}
		}
	}
	for _, b := range bound {
		if err := m.allowBound(b); err != nil {
			return nil, err
		}
	}
	if len(m.secrets) > 0 {
		d.Secrets = m.secrets
	}
	return compile(&d)
}

type merger struct {
	d       *document
	secrets map[string]secretDoc
}

// binding is one NAME@HOST.
type binding struct {
	flag string
	host hostPattern
}

func (m *merger) bind(flags []string) ([]binding, error) {
	var out []binding
	for _, s := range flags {
		name, host, ok := strings.Cut(s, "@")
		flag := "--secret " + s
		if !ok || !isName(name) || !isVariable(name) {
			return nil, &Error{At: flag, Why: "it is not NAME@HOST, with the name of a secret that is also one of a variable", Fix: "write GITHUB_TOKEN@api.github.com; a document can give it a variable of another name"}
		}
		p, err := parseHostPattern(host)
		if err != nil {
			return nil, &Error{At: flag, Why: err.Error()}
		}
		if _, there := m.d.Secrets[name]; there {
			return nil, &Error{At: flag, Why: "the policy binds a secret of this name already", Fix: "leave out the flag, or change the policy"}
		}
		b := m.secrets[name]
		b.Secret, b.Env = name, name
		if h := p.String(); !slices.Contains(b.Hosts, h) {
			b.Hosts = append(slices.Clone(b.Hosts), h)
		}
		m.secrets[name] = b
		out = append(out, binding{flag, p})
	}
	return out, nil
}

func (m *merger) add(r ruleDoc) {
	for _, have := range m.d.Egress.Rules {
		if have.Name == r.Name {
			return // the same flag twice
		}
	}
	m.d.Egress.Rules = append(m.d.Egress.Rules, r)
}

func (m *merger) allow(s string, bound []binding) error {
	r := ruleDoc{Name: "--allow " + s}
	rest := s
	scheme, after, found := strings.Cut(s, "://")
	if found {
		rest = strings.TrimSuffix(after, "/")
		switch scheme {
		case "ws", "wss":
			r.Protocol, r.WebSocket = "http"+strings.TrimPrefix(scheme, "ws"), true
		case "http", "https", "tcp":
			r.Protocol = scheme
		default:
			return fmt.Errorf("there is no protocol %q: write http, https, ws, wss or tcp, or none", scheme)
		}
	}
	port, err := r.place(rest)
	if err != nil {
		return err
	}
	m.add(r)
	if found || port == 0 || port == 80 || port == 443 {
		return nil
	}
	for _, b := range bound {
		if len(r.Hosts) > 0 && b.host.String() == r.Hosts[0] {
			return nil // a secret goes there: what nobody can look into must not
		}
	}
	raw := r
	raw.Name, raw.Protocol = r.Name+" (tcp)", string(TCP)
	m.add(raw)
	return nil
}

// place puts a host pattern, an address or a range into the rule, and gives
// the port, if there is one.
func (r *ruleDoc) place(s string) (port uint16, err error) {
	if strings.Contains(s, "/") {
		first, _, _ := strings.Cut(s, "/")
		if _, err := netip.ParseAddr(first); err != nil {
			return 0, fmt.Errorf("%q has a path: write the host alone; for paths write a rule in a policy", s)
		}
		_, err := parsePrefix(s)
		r.Addresses = []string{s}
		return 0, err
	}
	if h, err := ParseHost(s); err == nil {
		if ip, literal := h.Addr(); literal {
			r.Addresses = []string{ip.String()}
			return 0, nil
		}
	}
	if a, err := ParseAuthority(s, 443); err == nil {
		if ip, literal := a.Host().Addr(); literal {
			r.Addresses, r.Ports = []string{ip.String()}, []string{fmt.Sprint(a.Port())}
			return a.Port(), nil
		}
	}
	p, err := parseHostPattern(s)
	if err != nil {
		return 0, err
	}
	r.Hosts = []string{p.String()}
	return p.port, nil
}

func (m *merger) profile(s string) error {
	name, host, own := strings.Cut(s, "@")
	if name == "" || own && host == "" {
		return errors.New("it is not NAME, or NAME@HOST")
	}
	r := ruleDoc{Name: s, Profile: name}
	if own {
		r.Hosts = []string{host}
	}
	rules, err := expand([]ruleDoc{r})
	if err != nil {
		return err
	}
	for _, x := range rules {
		m.add(x)
	}
	return nil
}

// allowBound allows the host of a secret whole, if no rule has it.
func (m *merger) allowBound(b binding) error {
	for _, r := range m.d.Egress.Rules {
		if r.Action == "deny" {
			continue
		}
		for _, s := range r.Hosts {
			if p, err := parseHostPattern(s); err == nil && p.overlaps(b.host) {
				return nil
			}
		}
	}
	m.add(ruleDoc{Name: b.flag, Hosts: []string{b.host.String()}})
	return nil
}
