package policy

import (
	"fmt"
	"reflect"
	"strings"
)

// Suite is a table of expectations that ships beside a policy.
type Suite struct {
	// Policy is the file that is tested, from the folder of the suite; "" is
	// none. Flags are added.
	Policy string
	Flags  Flags
	expect []expectDoc
}

type suiteDoc struct {
	Version  int         `json:"version"`
	Policy   string      `json:"policy,omitempty"`
	Allow    []string    `json:"allow,omitempty"`
	Profiles []string    `json:"profiles,omitempty"`
	Secrets  []string    `json:"secrets,omitempty"`
	Expect   []expectDoc `json:"expect"`
}

type expectDoc struct {
	line   int
	Allow  string `json:"allow,omitempty"`
	Deny   string `json:"deny,omitempty"`
	Ask    string `json:"ask,omitempty"`
	Method string `json:"method,omitempty"`
	Body   string `json:"body,omitempty"`
	Access string `json:"access,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Failure is an expectation that does not hold.
type Failure struct {
	Line int    `json:"line"`
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
	Why  string `json:"why"`
}

// ParseSuite reads a table, YAML or JSON.
func ParseSuite(text []byte) (*Suite, error) {
	root, err := readTree(text)
	if err != nil {
		return nil, err
	}
	d := new(suiteDoc)
	if err := fill(root, reflect.ValueOf(d).Elem(), ""); err != nil {
		return nil, err
	}
	switch {
	case d.Version != 1:
		return nil, &Error{At: "version", Why: "the version is missing, or not 1", Fix: "begin with version: 1"}
	case len(d.Expect) == 0:
		return nil, &Error{At: "expect", Why: "nothing is expected, so that nothing could fail", Fix: "write - {allow: https://…}"}
	}
	return &Suite{d.Policy, Flags{d.Allow, d.Profiles, d.Secrets}, d.Expect}, nil
}

// Len counts the expectations.
func (s *Suite) Len() int { return len(s.expect) }

// Run holds p against the table. An expectation that makes no sense is an error.
func (s *Suite) Run(p *Policy) ([]Failure, error) {
	var out []Failure
	for i, e := range s.expect {
		f, err := e.run(p)
		if err != nil {
			return nil, &Error{e.line, fmt.Sprintf("expect[%d]", i), err.Error(), ""}
		}
		if f != nil {
			out = append(out, *f)
		}
	}
	return out, nil
}

func (e expectDoc) run(p *Policy) (*Failure, error) {
	want, target := "", ""
	for _, x := range []struct{ verdict, target string }{{"allow", e.Allow}, {"deny", e.Deny}, {"ask", e.Ask}} {
		if x.target == "" {
			continue
		}
		if target != "" {
			return nil, fmt.Errorf("it expects both %s and %s", want, x.verdict)
		}
		want, target = x.verdict, x.target
	}
	if target == "" {
		return nil, fmt.Errorf("it says neither allow nor deny nor ask")
	}
	got, rule, reason, why, err := e.ask(p, target)
	if err != nil {
		return nil, err
	}
	f := &Failure{Line: e.line, What: strings.TrimSpace(e.Method + " " + target), Want: want, Got: got, Why: why}
	switch {
	case got != want:
	case e.Rule != "" && e.Rule != rule:
		f.Want, f.Got = want+" by "+e.Rule, got+" by "+orNone(rule)
	case e.Reason != "" && e.Reason != reason:
		f.Want, f.Got = want+", "+e.Reason, got+", "+reason
	default:
		return nil, nil
	}
	return f, nil
}

func (e expectDoc) ask(p *Policy, target string) (got, rule, reason, why string, err error) {
	if strings.HasPrefix(target, "/") {
		access := Read
		switch e.Access {
		case "", "read":
		case "write":
			access = Write
		default:
			return "", "", "", "", fmt.Errorf("access %q is neither read nor write", e.Access)
		}
		d := p.Session().Paths.Decide(target, access)
		return d.Verdict.String(), d.Rule, d.Reason, d.Why, nil
	}
	if e.Access != "" {
		return "", "", "", "", fmt.Errorf("access is for paths, and %s is none", target)
	}
	r, err := ParseTarget(target, e.Method)
	if err != nil {
		// What no client could ask for is denied.
		return Deny.String(), "", ReasonInvalid, err.Error(), nil
	}
	r.Body, r.BodySize = []byte(e.Body), int64(len(e.Body))
	d := Final(Walk(p, r))
	if d.Rule != nil {
		rule = d.Rule.Name
	}
	return d.Verdict.String(), rule, d.Reason, d.Why, nil
}
