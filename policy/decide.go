package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Stage is how much is known of an outbound act. A decision that needs more
// says Continue, and the next stage decides.
type Stage int

// The stages, in order.
const (
	Name    Stage = iota + 1 // a name is looked up: To has no port
	Connect                  // a stream begins: To is known; Scheme may be
	Head                     // a request line and its headers
	Body                     // with the whole body
)

// Scheme is what is spoken on a stream.
type Scheme string

// The schemes. "" is not known yet. TLS, at the stage Connect, is a stream that
// has shown itself to be TLS: the decision is Allow where a rule splices it or
// takes any stream, and Continue where it has to be terminated. HTTPS is one
// that the gate terminates. TCP is a stream that is neither TLS nor HTTP.
const (
	HTTP  Scheme = "http"
	HTTPS Scheme = "https"
	TLS   Scheme = "tls"
	TCP   Scheme = "tcp"
)

// Request is one outbound act as far as it is known.
type Request struct {
	Stage     Stage
	To        Authority
	Scheme    Scheme
	Method    string
	Path      string // CanonicalPath
	Query     map[string][]string
	Header    map[string][]string // canonical names, as net/http has them
	WebSocket bool
	Body      []byte // Stage Body
	BodySize  int64  // -1 when not known
	State     State

	// symbolic leaves conditions open, to compare policies by.
	symbolic bool
}

// State is what has happened before, by the name of the rule.
type State struct {
	Used map[string]Usage
	// All is the usage of all rules together.
	All Usage
	// Granted lists rules that a person has allowed for the rest of the session.
	Granted map[string]bool
}

// Usage counts what went out.
type Usage struct {
	Requests int64
	Upload   int64 // bytes of bodies and streams
	Leak     int64 // bytes that the sandbox chose in names, paths and queries of leak-budgeted rules
}

// Verdict is the answer.
type Verdict int

// The verdicts.
const (
	Deny Verdict = iota
	Allow
	Ask
	Continue
)

// String gives the word that documents and output have.
func (v Verdict) String() string {
	if v < Deny || v > Continue {
		return fmt.Sprintf("verdict(%d)", int(v))
	}
	return [...]string{"deny", "allow", "ask", "continue"}[v]
}

// Decision is the answer to one Request.
type Decision struct {
	Verdict Verdict
	// Rule is the rule that decided, nil when none did. For Continue at Connect
	// it is the first that may allow, whose TLS mode holds for the stream.
	Rule *Rule
	// Reason is a stable code: see reasons.go.
	Reason string
	// Why says it in a sentence, for the person or model that reads the denial.
	Why string
	// Need is the stage that a Continue waits for.
	Need Stage
}

// Decide says what policy p makes of request r. Deny beats allow, then the
// first rule that matches decides; what no rule matches is denied. A nil
// policy denies everything.
//
// More knowledge never allows what less has denied: a name that is denied is
// denied at all later stages, and what is allowed at Head was never denied before.
func Decide(p *Policy, r Request) Decision {
	if p == nil {
		return Decision{Reason: ReasonNoPolicy, Why: "there is no policy, so nothing is allowed"}
	}
	if d, bad := invalid(r); bad {
		return d
	}
	host := r.To.Host()
	if isMetadata(host) {
		return Decision{Reason: ReasonMetadata, Why: fmt.Sprintf("%s is a cloud's metadata service, which hands out credentials; no rule can allow it", host)}
	}
	return p.decide(&r)
}

func invalid(r Request) (Decision, bool) {
	why := ""
	switch {
	case r.Stage < Name || r.Stage > Body:
		why = "the request has no stage"
	case r.To.Host().IsZero():
		why = "the request has no host"
	case r.Stage > Name && r.To.Port() == 0:
		why = "the request has no port"
	case r.Stage >= Head && r.Scheme != HTTP && r.Scheme != HTTPS:
		why = "the request has a head and is no HTTP"
	case r.Stage >= Head && !strings.HasPrefix(r.Path, "/"):
		why = "the request has no path"
	}
	return Decision{Reason: ReasonInvalid, Why: why}, why != ""
}

// maxReasons is of how many rules that have other paths is asked why exactly
// they do not match.
const maxReasons = 8

func (p *Policy) decide(r *Request) Decision {
	var buf [16]entry
	candidates := p.index.lookup(r.To.Host(), buf[:0])
	resolver := isResolver(r.To.Host())
	var denyMaybe, found *Rule
	need, result := Stage(0), no
	best := mismatch{reason: ReasonNoRule}
	if _, literal := r.To.Host().Addr(); literal {
		best.reason = ReasonAddress
	}
	path := ""
	if r.Stage >= Head {
		path = r.Path
	}
	for i := range candidates {
		if !candidates[i].denies {
			continue
		}
		rule := p.rules[candidates[i].rule]
		switch m, _, n := rule.match(r); m {
		case yes:
			return Decision{Rule: rule, Reason: ReasonRule, Why: fmt.Sprintf("rule %q denies it%s", rule.Name, described(rule))}
		case maybe:
			if denyMaybe == nil {
				denyMaybe = rule
			}
			need = max(need, n)
		}
	}
	passedOver := 0
	for i := range candidates {
		e := &candidates[i]
		if e.denies {
			continue
		}
		if path != "" && e.skips(path) {
			if passedOver++; passedOver > maxReasons {
				continue // one of many whose paths begin otherwise: no better reason is there
			}
		}
		rule := p.rules[e.rule]
		if resolver && !rule.names(r.To.Host()) {
			best.raise(rule, ReasonResolver)
			continue
		}
		m, why, n := rule.match(r)
		if m == yes && denyMaybe != nil && rule.TLS == Splice && r.Scheme == TLS {
			// It would let pass unseen what the other rule may deny.
			m, why = no, ReasonUninspected
		}
		if m == no {
			best.raise(rule, why)
			continue
		}
		found, result, need = rule, m, max(need, n)
		break
	}
	switch {
	case found == nil && best.reason == ReasonUninspected:
		return Decision{Rule: denyMaybe, Reason: ReasonUninspected, Why: fmt.Sprintf("rule %q denies some requests to %s, and rule %q does not let the gate look into them", denyMaybe.Name, r.To.Host(), best.rule.Name)}
	case found == nil:
		return best.denial(r)
	case result == maybe:
		return Decision{Verdict: Continue, Rule: found, Reason: ReasonLaterStage, Need: need, Why: fmt.Sprintf("rule %q may allow it; %s decides", found.Name, need)}
	case denyMaybe != nil:
		return Decision{Verdict: Continue, Rule: found, Reason: ReasonLaterStage, Need: need, Why: fmt.Sprintf("rule %q may deny it; %s decides", denyMaybe.Name, need)}
	}
	return p.conclude(found, r)
}

// conclude applies limits and the rule's action.
func (p *Policy) conclude(rule *Rule, r *Request) Decision {
	for _, l := range []struct {
		what   string
		limits RuleLimits
		used   Usage
	}{
		{fmt.Sprintf("rule %q", rule.Name), rule.Limits, r.State.Used[rule.Name]},
		{"the policy", p.limits, r.State.All},
	} {
		if l.limits == (RuleLimits{}) {
			continue
		}
		if reason, why := l.limits.exceeded(l.used, Usage{Requests: 1, Upload: max(r.BodySize, 0), Leak: rule.leak(r)}); reason != "" {
			return Decision{Rule: rule, Reason: reason, Why: fmt.Sprintf("%s of %s", why, l.what)}
		}
	}
	if rule.Action == Ask {
		if r.State.Granted[rule.Name] {
			return Decision{Verdict: Allow, Rule: rule, Reason: ReasonGranted, Why: fmt.Sprintf("rule %q asks, and a person has allowed it", rule.Name)}
		}
		return Decision{Verdict: Ask, Rule: rule, Reason: ReasonRule, Why: fmt.Sprintf("rule %q asks a person%s", rule.Name, described(rule))}
	}
	return Decision{Verdict: Allow, Rule: rule, Reason: ReasonRule, Why: fmt.Sprintf("rule %q allows it", rule.Name)}
}

func described(r *Rule) string {
	if r.Description == "" {
		return ""
	}
	return ": " + r.Description
}

// exceeded tells which limit used and more together pass.
func (l RuleLimits) exceeded(used, more Usage) (reason, why string) {
	switch {
	case l.Requests > 0 && used.Requests+more.Requests > l.Requests:
		return ReasonLimitRequests, fmt.Sprintf("it would pass the %d requests", l.Requests)
	case l.Upload > 0 && used.Upload+more.Upload > l.Upload:
		return ReasonLimitUpload, fmt.Sprintf("it would pass the %d bytes of upload", l.Upload)
	case l.Leak > 0 && used.Leak+more.Leak > l.Leak:
		return ReasonLimitLeak, fmt.Sprintf("it would pass the %d bytes that names, paths and queries may carry", l.Leak)
	}
	return "", ""
}

// Passed tells that a limit has been passed by what has been used, and which:
// the gate asks while a stream or body runs.
func (l RuleLimits) Passed(used Usage) (reason string, passed bool) {
	reason, _ = l.exceeded(used, Usage{})
	return reason, reason != ""
}

// names tells that r names a host exactly, by no wildcard or range.
func (r *Rule) names(h Host) bool {
	if a, literal := h.Addr(); literal {
		return slices.Contains(r.addresses, netip.PrefixFrom(a, a.BitLen()))
	}
	return slices.ContainsFunc(r.hosts, func(p hostPattern) bool { return p.wild == exact && p.name == h })
}
