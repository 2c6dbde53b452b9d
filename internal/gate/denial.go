package gate

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// Denial implements act.Act.
func (a *egress) Denial() act.Denial {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.denial()
}

func (a *egress) denial() act.Denial {
	d := act.Denial{
		Error: "denied", Sandbox: a.box.id, What: a.what(), Reason: a.decision.Reason, Why: a.decision.Why,
		Ask: a.howToAsk(), Hint: "Do not try another way out: there is none that does not pass here. Go on without it, or ask", Seq: a.seq,
	}
	if a.decision.Rule != nil {
		d.Rule = a.decision.Rule.Name
	}
	return d
}

// what says what was wanted. The query of a URL is left out.
func (a *egress) what() string {
	r := &a.record
	host := r.Host
	switch {
	case r.Method != "":
		if r.Port != 0 && !(r.Scheme == string(policy.HTTPS) && r.Port == 443) && !(r.Scheme == string(policy.HTTP) && r.Port == 80) {
			host = net.JoinHostPort(host, strconv.Itoa(int(r.Port)))
		} else if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		return fmt.Sprintf("%s %s://%s%s", r.Method, r.Scheme, host, r.Path)
	case a.kind == act.NameLookup:
		return "look up " + host
	case r.Port == 0:
		return "connect to " + host
	}
	return "connect to " + net.JoinHostPort(host, strconv.Itoa(int(r.Port)))
}

// howToAsk says what a person can do to let it pass.
func (a *egress) howToAsk() string {
	switch a.decision.Reason {
	case policy.ReasonMetadata, "address_metadata", "address_gate", "gate_loop", "gate_port", "bad_name", "unknown_address", "closed":
		return "Nothing allows this"
	case "request_malformed", "request_ambiguous":
		return "Send it in the one form that servers agree on; no rule allows this one"
	case policy.ReasonLimitRequests, policy.ReasonLimitUpload, policy.ReasonLimitLeak, "names_exhausted":
		return "Ask whoever runs this sandbox to raise the limit in its policy"
	case "address_internal":
		return "Ask whoever runs this sandbox for a rule in its policy that names the address under internal; a flag cannot"
	case policy.ReasonSecret:
		// To allow the host by its name would let credentials of the sandbox's own pass.
		return "Ask whoever runs this sandbox to bind a secret: bailey run --secret NAME@" + a.record.Host
	case "foreign_credential":
		return "Send the placeholder that is in the sandbox's environment, or no credential; nothing allows another beside the bound secret"
	case "secret_misdirected":
		return "Send it without the placeholder, in what is quoted too; or ask whoever runs this sandbox to bind the secret to this place, with hosts and in of its policy"
	case "tls_failed":
		return "Let the client trust the authorities in the file that SSL_CERT_FILE names; or, if it knows its own only, ask whoever runs this sandbox for a rule with tls: splice"
	case policy.ReasonRule, policy.ReasonUninspected:
		return "Ask whoever runs this sandbox to change " + a.ruleName() + " in its policy: what denies comes before all that allows"
	case policy.ReasonMethod, policy.ReasonPath, policy.ReasonQuery, policy.ReasonWebSocket, policy.ReasonCondition:
		// To allow the host by its name would open all of it.
		return "Ask whoever runs this sandbox for a rule for this in its policy" + a.ruleLine()
	case ReasonApprovalDenied:
		return "A person has said no"
	case ReasonApprovalTimeout, ReasonApprovalUnavailable:
		return "Ask whoever runs this sandbox to be there for the question, or to answer it with: bailey approvals"
	}
	host := a.record.Host
	if a.record.Port != 0 && a.record.Port != 443 && a.record.Port != 80 {
		host = net.JoinHostPort(host, strconv.Itoa(int(a.record.Port)))
	}
	return "Ask whoever runs this sandbox to allow it: bailey run --allow " + host + ", or a rule in its policy"
}

// ruleName names the rule that denies.
func (a *egress) ruleName() string {
	if a.decision.Rule == nil {
		return "the rule"
	}
	return "rule " + strconv.Quote(a.decision.Rule.Name)
}

// maxRuleLine bounds it, in bytes: of what is longer a person would be shown a part.
const maxRuleLine = 200

// ruleLine gives the line that allows this request and no other, if one can be
// written: in a path that held a secret there is no more than a hint at it.
func (a *egress) ruleLine() string {
	r := &a.record
	line := policy.RuleFor(policy.Observation{Host: r.Host, Port: r.Port, Scheme: policy.Scheme(r.Scheme), Method: r.Method, Path: r.Path,
		Query: r.Query, WebSocket: a.kind == act.WebSocket})
	if line == "" || len(line) > maxRuleLine {
		return ""
	}
	return ", under egress and rules: " + line
}

// report hands a denial to Options.Denied, without waiting for it.
func (b *Box) report(d act.Denial) {
	if b.denials == nil {
		return
	}
	select {
	case b.denials <- &d:
	default:
		b.dropped.Add(1)
	}
}

// tell calls Options.Denied until the box ends, and for what is left then.
func (b *Box) tell(denied func(act.Denial)) {
	for {
		select {
		case d := <-b.denials:
			denied(*d)
		case <-b.ctx.Done():
			for {
				select {
				case d := <-b.denials:
					denied(*d)
				default:
					return
				}
			}
		}
	}
}

// Dropped counts denials that Options.Denied was not told of.
func (b *Box) Dropped() int64 { return b.dropped.Load() }
