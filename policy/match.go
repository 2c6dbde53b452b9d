package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// fit says whether a rule stands for a request, as far as the stage knows.
type fit int

const (
	no fit = iota
	maybe
	yes
)

// queryRule lists what a query may have: name, with any value, or name=value.
// nil is anything.
type queryRule []string

func (l queryRule) allows(name, value string) bool {
	for _, item := range l {
		if key, only, fixed := strings.Cut(item, "="); key == name && (!fixed || only == value) {
			return true
		}
	}
	return false
}

// String names a stage in a sentence.
func (s Stage) String() string {
	switch s {
	case Name:
		return "the name"
	case Connect:
		return "the connection"
	case Head:
		return "the request"
	case Body:
		return "the request's body"
	}
	return fmt.Sprintf("stage(%d)", int(s))
}

// match tells whether r stands for a request to one of its hosts. For no, why
// is what does not fit; for maybe, need is the stage that knows more.
//
// What it says at one stage holds at later ones: no stays no, yes stays yes.
func (r *Rule) match(q *Request) (f fit, why string, need Stage) {
	f = yes
	wait := func(s Stage) { f, need = maybe, max(need, s) }
	if q.Stage == Name {
		if r.Action == Deny && r.ports == nil && !r.portInHosts(q.To.Host()) && r.Protocol == "" && !r.inspects() {
			return yes, "", 0
		}
		if !r.anyPort(q.To.Host()) {
			return no, ReasonPort, 0
		}
		return maybe, "", Connect
	}
	if !r.matchesPort(q) {
		return no, ReasonPort, 0
	}
	switch fits := r.matchesScheme(q); fits {
	case no:
		return no, ReasonProtocol, 0
	case maybe:
		wait(Head)
	}
	if r.TLS == Splice && r.Action != Deny {
		return f, "", need
	}
	if r.Action == Deny && !r.inspects() {
		return f, "", need
	}
	if r.pinned && len(r.Secrets) == 0 {
		return no, ReasonSecret, 0
	}
	if q.Stage < Head {
		if q.Scheme == TCP {
			return no, ReasonProtocol, 0
		}
		wait(Head)
		return f, "", need
	}
	if why := r.matchesHead(q); why != "" {
		return no, why, 0
	}
	if r.when != nil {
		if q.Stage < r.when.stage || q.symbolic {
			wait(r.when.stage)
			return f, "", need
		}
		if !r.when.holds(q, r.Action == Deny) {
			return no, ReasonCondition, 0
		}
	}
	return f, "", need
}

// inspects tells that r looks at more than host, port and protocol.
func (r *Rule) inspects() bool {
	return r.methods != nil || r.paths != nil || r.query != nil || r.when != nil
}

// portInHosts tells that every entry for h has a port of its own.
func (r *Rule) portInHosts(h Host) bool {
	for i := range r.hosts {
		if r.hosts[i].port == 0 && r.hosts[i].matches(h) {
			return false
		}
	}
	a, literal := h.Addr()
	return !literal || !containsAddr(r.addresses, a)
}

// anyPort tells that there is a port that r stands for.
func (r *Rule) anyPort(h Host) bool {
	return r.ports == nil || len(r.ports) > 0 || slices.ContainsFunc(r.hosts, func(p hostPattern) bool { return p.port != 0 && p.matches(h) })
}

// matchesPort tells whether host and port are r's. An entry host:port has that
// port alone; the others have the rule's ports, or the defaults.
func (r *Rule) matchesPort(q *Request) bool {
	h, port := q.To.Host(), q.To.Port()
	fallback := false
	if a, literal := h.Addr(); literal {
		fallback = containsAddr(r.addresses, a)
	}
	for i := range r.hosts {
		p := &r.hosts[i]
		if (p.port == 0 && fallback) || !p.matches(h) {
			continue
		}
		if p.port == port {
			return true
		}
		fallback = fallback || p.port == 0
	}
	switch {
	case !fallback:
		return false
	case r.ports != nil:
		return slices.ContainsFunc(r.ports, func(pr portRange) bool { return pr.from <= port && port <= pr.to })
	case r.Action == Deny:
		return true
	case r.Protocol == HTTP:
		return port == 80
	case r.Protocol == HTTPS || r.TLS == Splice:
		return port == 443
	}
	return port == 443 || port == 80
}

// matchesScheme tells whether what is spoken is what r means. Without a
// protocol, port 443 is TLS and port 80 plain HTTP.
func (r *Rule) matchesScheme(q *Request) fit {
	want := r.Protocol
	if want == TCP || r.Action == Deny && want == "" {
		return yes
	}
	if q.Scheme == TCP {
		return no
	}
	if want == "" && r.Action != Deny {
		switch {
		case r.TLS == Splice || q.To.Port() == 443:
			want = HTTPS
		case q.To.Port() == 80:
			want = HTTP
		}
	}
	switch q.Scheme {
	case "":
		if want == "" && r.TLS != Splice {
			return yes
		}
		return maybe
	case TLS:
		if want == HTTP {
			return no
		}
		return yes
	case HTTPS:
		if want == HTTP || r.TLS == Splice && r.Action != Deny {
			return no
		}
		return yes
	}
	if want == HTTPS {
		return no
	}
	return yes
}

// matchesHead looks at the request line, and gives what does not fit.
func (r *Rule) matchesHead(q *Request) (why string) {
	if r.methods != nil && !slices.Contains(r.methods, q.Method) {
		return ReasonMethod
	}
	if r.paths != nil && !r.matchesPath(q.Path) {
		return ReasonPath
	}
	if r.query != nil {
		for name, values := range q.Query {
			if len(values) == 0 && !r.query.allows(name, "") {
				return ReasonQuery
			}
			for _, v := range values {
				if !r.query.allows(name, v) {
					return ReasonQuery
				}
			}
		}
	}
	if q.WebSocket && !r.WebSocket && r.Action != Deny {
		return ReasonWebSocket
	}
	return ""
}

func (r *Rule) matchesPath(path string) bool {
	for i := range r.paths {
		if r.paths[i].matches(path) {
			return true
		}
	}
	if r.Action == Deny {
		if other := otherReading(path); other != path {
			for i := range r.paths {
				if r.paths[i].matches(other) {
					return true
				}
			}
		}
	}
	return false
}

// otherReading gives a canonical path as a server reads it that decodes
// slashes before it splits and drops the parameters of segments.
func otherReading(path string) string {
	if !strings.Contains(path, "%2F") && !strings.Contains(path, ";") {
		return path
	}
	segments := strings.Split(strings.ReplaceAll(path, "%2F", "/"), "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

func containsAddr(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// mismatch keeps the denial that says most: of the rule that came closest.
type mismatch struct {
	reason string
	rule   *Rule
}

// closeness orders the reasons by how far a request got.
var closeness = []string{ReasonNoRule, ReasonAddress, ReasonResolver, ReasonPort, ReasonProtocol, ReasonSecret, ReasonMethod, ReasonPath, ReasonQuery, ReasonWebSocket, ReasonCondition, ReasonUninspected}

func (m *mismatch) raise(r *Rule, reason string) {
	if reason != m.reason && slices.Index(closeness, reason) > slices.Index(closeness, m.reason) {
		m.reason, m.rule = reason, r
	}
}

func (m *mismatch) denial(q *Request) Decision {
	host := q.To.Host()
	near := ""
	if m.rule != nil {
		near = fmt.Sprintf("rule %q", m.rule.Name)
	}
	why := ""
	switch m.reason {
	case ReasonNoRule:
		why = fmt.Sprintf("no rule allows the host %s", host)
	case ReasonAddress:
		why = fmt.Sprintf("no rule names the address %s; rules for names do not stand for addresses", host)
	case ReasonResolver:
		why = fmt.Sprintf("%s is a public DNS resolver, which can carry data anywhere; only a rule that names it exactly allows it", host)
	case ReasonPort:
		why = fmt.Sprintf("no rule has port %d of %s; %s has other ports", q.To.Port(), host, near)
		if q.Stage == Name {
			why = fmt.Sprintf("%s has the host %s, and no port", near, host)
		}
	case ReasonProtocol:
		why = fmt.Sprintf("%s has %s, but not for what is spoken there: %s", near, q.To, schemeWord(q.Scheme))
	case ReasonSecret:
		why = fmt.Sprintf("%s holds only with a secret bound to %s, so that no other credential can be used", near, host)
	case ReasonMethod:
		why = fmt.Sprintf("no rule for %s has the method %s; %s has others", q.To, q.Method, near)
	case ReasonPath:
		why = fmt.Sprintf("no rule for %s has this path with the method %s; %s has others", q.To, q.Method, near)
	case ReasonQuery:
		why = fmt.Sprintf("%s has this path, but not all that the query has", near)
	case ReasonWebSocket:
		why = fmt.Sprintf("%s does not let WebSockets", near)
	case ReasonCondition:
		why = fmt.Sprintf("the condition of %s does not hold", near)
	}
	return Decision{Reason: m.reason, Why: why}
}

func schemeWord(s Scheme) string {
	switch s {
	case HTTP:
		return "plain HTTP"
	case HTTPS, TLS:
		return "TLS"
	case TCP:
		return "neither HTTP nor TLS"
	}
	return "not known yet"
}
