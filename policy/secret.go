package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Secret binds a secret of the store to places in requests.
type Secret struct {
	Name string // of the store
	Env  string // the variable that holds the placeholder inside; "" none
	// Hosts are patterns, each with :PORT or without: the document's, or those
	// of the rules that name the secret.
	Hosts []string
	// In are the places: header, basic, query, json, form, websocket, path, sigv4.
	In []string
	// Header, with Format ("Bearer {value}"), is set by the gate whatever the
	// sandbox sends; "" only replaces placeholders.
	Header, Format string

	hosts []hostPattern
}

// Covers tells whether a placeholder of s may be replaced in a request: its
// host and port are the secret's. The rule that allowed the request must also
// list the secret; see Rule.Secrets.
func (s *Secret) Covers(r Request) bool {
	for i := range s.hosts {
		p := &s.hosts[i]
		if p.matches(r.To.Host()) && (p.port == 0 || p.port == r.To.Port()) {
			return true
		}
	}
	return false
}

// places are where values may be put in.
var places = []string{"header", "basic", "query", "json", "form", "websocket", "path", "sigv4"}

// defaultPlaces hold where a document says nothing.
var defaultPlaces = []string{"header", "basic"}

// framing are the headers that say where a message goes or ends: no secret
// is one of them.
var framing = []string{"host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect", "proxy-authorization", "keep-alive"}

// compileSecrets fills p.secrets and joins them with the rules. A secret that
// rules name goes where those rules do; one that none names goes to its hosts,
// by every rule that has them.
func (p *Policy) compileSecrets(docs map[string]secretDoc) error {
	p.secrets = map[string]*Secret{}
	variables := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(docs)) {
		d := docs[key]
		at := "secrets." + key
		s, err := d.compile(key, at)
		if err != nil {
			return err
		}
		if other, twice := variables[s.Env]; twice && s.Env != "" {
			return &Error{d.line, at + ".env", fmt.Sprintf("%s is the variable of secrets.%s already", s.Env, other), "choose another"}
		}
		variables[s.Env] = key
		p.secrets[key] = s
	}
	named := map[string]bool{}
	for i, r := range p.rules {
		for _, key := range r.Secrets {
			s := p.secrets[key]
			at := fmt.Sprintf("egress.rules[%d].secrets", i)
			switch {
			case s == nil:
				return &Error{p.line(i), at, fmt.Sprintf("the document binds no secret %q", key), "describe it under secrets"}
			case docs[key].Hosts != nil && !overlapAny(r.hosts, s.hosts):
				return &Error{p.line(i), at, fmt.Sprintf("the secret %s is bound to other hosts than the rule's", key), "make the two agree"}
			case len(r.addresses) > 0 && len(r.hosts) == 0:
				return &Error{p.line(i), at, "a secret is bound to names, and the rule has only addresses", "name hosts"}
			}
			named[key] = true
			if docs[key].Hosts == nil {
				s.hosts = append(s.hosts, r.hosts...)
			}
		}
	}
	for key, s := range p.secrets {
		if len(s.hosts) == 0 && docs[key].Hosts == nil {
			return &Error{docs[key].line, "secrets." + key, "no rule names it and it names no hosts, so that it goes nowhere", "give it hosts, or a rule with secret: " + key}
		}
		s.Hosts = patternStrings(s.hosts)
		for _, r := range p.rules {
			if err := p.joinSecret(key, s, r, named[key], docs[key].line); err != nil {
				return err
			}
		}
	}
	for _, r := range p.rules {
		slices.Sort(r.Secrets)
		r.Secrets = slices.Compact(r.Secrets)
	}
	return nil
}

// joinSecret gives a rule the secret of its hosts, and refuses a rule that
// would let requests to them pass unseen.
func (p *Policy) joinSecret(key string, s *Secret, r *Rule, named bool, line int) error {
	if r.Action == Deny || !overlapAny(r.hosts, s.hosts) {
		return nil
	}
	if r.TLS == Splice {
		for _, rp := range r.hosts {
			for _, sp := range s.hosts {
				if rp.overlaps(sp) && r.hasPort(rp, sp.port) {
					return &Error{line, "secrets." + key, fmt.Sprintf("rule %q passes on streams to %s that nobody looks into, so that other credentials could be used there", r.Name, sp),
						"give the rule other hosts or ports, or let it terminate TLS"}
				}
			}
		}
		return nil
	}
	if !named {
		r.Secrets = append(r.Secrets, key)
	}
	return nil
}

// hasPort tells whether a rule by its entry rp stands for a secret's port, of
// which 0 is those of HTTP.
func (r *Rule) hasPort(rp hostPattern, port uint16) bool {
	want := []uint16{443, 80}
	if port != 0 {
		want = []uint16{port}
	}
	return slices.ContainsFunc(want, func(w uint16) bool {
		h := rp.name
		if rp.wild != exact {
			h = Host{name: "a." + rp.name.name}
		}
		return r.matchesPort(&Request{To: At(h, w)})
	})
}

func (d *secretDoc) compile(key, at string) (*Secret, error) {
	fail := func(field, why, fix string) (*Secret, error) {
		return nil, &Error{d.line, join(at, field), why, fix}
	}
	s := &Secret{Name: d.Secret, Env: d.Env, Header: d.Header, Format: d.Format, In: slices.Clone(d.In)}
	if s.Name == "" {
		s.Name = key
	}
	if !isName(s.Name) {
		return fail("secret", strconv.Quote(s.Name)+" is no secret's name", "use letters, digits, and _ . - inside")
	}
	if s.Env != "" && !isVariable(s.Env) {
		return fail("env", strconv.Quote(s.Env)+" is no name of a variable", "use letters, digits and underscores")
	}
	for i, h := range d.Hosts {
		p, err := parseHostPattern(h)
		if err != nil {
			return fail(fmt.Sprintf("hosts[%d]", i), err.Error(), "")
		}
		s.hosts = append(s.hosts, p)
	}
	if d.In == nil {
		s.In = slices.Clone(defaultPlaces)
	}
	for i, place := range s.In {
		if !slices.Contains(places, place) {
			return fail(fmt.Sprintf("in[%d]", i), "there is no place "+strconv.Quote(place), "there are "+strings.Join(places, ", "))
		}
	}
	switch {
	case s.Header == "" && s.Format != "":
		return fail("format", "it says how a header looks, and there is none", "name the header")
	case s.Header == "" && s.Env == "":
		return fail("", "nothing uses it", "give env, the variable that holds its placeholder, or header, which the gate then sets")
	case s.Header == "":
		return s, nil
	case !isToken(s.Header) || slices.Contains(framing, strings.ToLower(s.Header)):
		return fail("header", strconv.Quote(s.Header)+" is no header that may hold a secret", "")
	}
	if s.Format == "" {
		s.Format = "{value}"
	}
	if strings.Count(s.Format, "{value}") != 1 || strings.ContainsFunc(s.Format, func(c rune) bool { return c < ' ' || c > '~' }) {
		return fail("format", strconv.Quote(s.Format)+" must be plain text with {value} in it once", `write "Bearer {value}"`)
	}
	return s, nil
}

// isName tells that s can be a name in the store and a word in messages.
func isName(s string) bool {
	return word(s, 128, "_.-") && s[0] != '.' && s[0] != '-'
}

func isVariable(s string) bool {
	return word(s, 128, "_") && (s[0] < '0' || s[0] > '9')
}

func patternStrings(list []hostPattern) []string {
	out := make([]string, 0, len(list))
	for _, p := range list {
		if s := p.String(); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func overlapAny(a, b []hostPattern) bool {
	for _, x := range a {
		if slices.ContainsFunc(b, x.overlaps) {
			return true
		}
	}
	return false
}
