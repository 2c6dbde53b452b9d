package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// WouldAllow says what would let a request pass that p denies: for the person
// who asks why. "" is nothing, or that nothing is needed.
func WouldAllow(p *Policy, r Request) string {
	d := Final(Walk(p, r))
	switch d.Reason {
	case ReasonMetadata, ReasonInvalid:
		return ""
	case ReasonRule, ReasonUninspected:
		if d.Verdict != Deny {
			return ""
		}
		return fmt.Sprintf("rule %q changed or removed: denials come before everything that is allowed", d.Rule.Name)
	case ReasonLimitRequests, ReasonLimitUpload, ReasonLimitLeak:
		return fmt.Sprintf("a greater %s under limits, of rule %q or of the policy", strings.TrimPrefix(d.Reason, "limit_"), d.Rule.Name)
	}
	if d.Verdict != Deny {
		return ""
	}
	o := Observation{Host: r.To.Host().String(), Port: r.To.Port(), Scheme: r.Scheme, Method: r.Method, Path: r.Path, WebSocket: r.WebSocket}
	for k := range r.Query {
		o.Query = append(o.Query, k)
	}
	slices.Sort(o.Query)
	learned, err := Learn([]Observation{o})
	if err != nil {
		return ""
	}
	_, rules, _ := strings.Cut(string(learned.Document), "rules:\n")
	text := "this rule:\n" + rules
	if flag, err := FromFlags(Flags{Allow: []string{flagFor(r)}}); err == nil && Final(Walk(flag, r)).Verdict == Allow {
		text = "--allow " + flagFor(r) + ", for the whole host; or only this, with " + text
	}
	return text
}

// RuleFor gives the entry of a document's rules that allows what was observed and
// no more, as one line of YAML; "" if no rule can.
func RuleFor(o Observation) string {
	r, err := o.request()
	if err != nil {
		return ""
	}
	l := &learner{hosts: map[Authority]*learned{}}
	l.see(r)
	list := l.rules()
	list[0].Name = "" // the default is as good
	text, err := document{Version: 1, Egress: egressDoc{Rules: list}}.yaml()
	if err != nil {
		return ""
	}
	if p, err := Parse(text); err != nil || Final(Walk(p, r)).Verdict != Allow {
		return ""
	}
	var line strings.Builder
	e := json.NewEncoder(&line) // JSON is YAML
	e.SetEscapeHTML(false)
	if e.Encode(list[0]) != nil {
		return ""
	}
	return "- " + strings.TrimSpace(line.String())
}

// flagFor gives what --allow would need.
func flagFor(r Request) string {
	to := r.To.String()
	if r.To.Port() == 443 || r.To.Port() == 80 {
		to = to[:strings.LastIndexByte(to, ':')]
	}
	switch {
	case r.Scheme == TCP && to != r.To.String():
		return "tcp://" + r.To.String()
	case r.WebSocket:
		return strings.Replace(string(r.Scheme), "http", "ws", 1) + "://" + to
	}
	return to
}
