package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/bailey-sandbox/bailey/policy"
)

func (f *policyFlags) explain(out io.Writer, rest []string) (int, error) {
	p, err := f.policy()
	switch {
	case err != nil:
		return 0, err
	case len(rest) == 0:
		return 0, f.explainAll(out, p)
	case strings.HasPrefix(rest[0], "/"):
		return 0, f.explainPath(out, p, rest[0])
	}
	a, err := f.ask(p, rest[0])
	if err != nil {
		return 0, err
	}
	if f.asJSON {
		return 0, json.NewEncoder(out).Encode(a)
	}
	fmt.Fprintf(out, "%s: %s\n", a.What, a.Verdict)
	for _, s := range a.Steps {
		fmt.Fprintf(out, "  %s: %s, %s\n", s.Stage, s.Verdict, s.Why)
	}
	if a.Rule != "" {
		fmt.Fprintf(out, "rule:    %s\n", a.Rule)
	}
	if len(a.Secrets) > 0 {
		fmt.Fprintf(out, "secrets: %s\n", strings.Join(a.Secrets, ", "))
	}
	fmt.Fprintf(out, "reason:  %s\npolicy:  %s\n", a.Reason, a.Policy)
	if a.Mode == policy.Audit {
		fmt.Fprintln(out, "The mode is audit: what is denied passes, and is recorded.")
	}
	if a.Would != "" {
		fmt.Fprintf(out, "What would allow it:\n  %s\n", strings.ReplaceAll(strings.TrimSpace(a.Would), "\n", "\n  "))
	}
	return 0, nil
}

// pathAnswer is what explain prints of a path.
type pathAnswer struct {
	Path  string              `json:"path"`
	Read  policy.PathDecision `json:"read"`
	Write policy.PathDecision `json:"write"`
}

func (f *policyFlags) explainPath(out io.Writer, p *policy.Policy, path string) error {
	rules := p.Session().Paths
	a := pathAnswer{path, rules.Decide(path, policy.Read), rules.Decide(path, policy.Write)}
	if f.asJSON {
		return json.NewEncoder(out).Encode(a)
	}
	_, err := fmt.Fprintf(out, "%s\n  read:  %s, %s\n  write: %s, %s\n", path, a.Read.Verdict, a.Read.Why, a.Write.Verdict, a.Write.Why)
	return err
}

// wholePolicy is what explain prints without an argument.
type wholePolicy struct {
	Policy  string                    `json:"policy"` // digest
	Mode    policy.Mode               `json:"mode"`
	Session policy.Session            `json:"session"`
	Rules   []policy.Description      `json:"rules"`
	Limits  policy.RuleLimits         `json:"limits"`
	Secrets map[string]*policy.Secret `json:"secrets,omitempty"`
}

func (f *policyFlags) explainAll(out io.Writer, p *policy.Policy) error {
	whole := wholePolicy{p.Digest(), p.Mode(), p.Session(), p.Describe(), p.Limits(), p.Secrets()}
	if f.asJSON {
		return json.NewEncoder(out).Encode(whole)
	}
	fmt.Fprintf(out, "policy %s\n", whole.Policy)
	if whole.Mode == policy.Audit {
		fmt.Fprintln(out, "The mode is audit: what is denied passes, and is recorded.")
	}
	if whole.Session.Description != "" {
		fmt.Fprintln(out, whole.Session.Description)
	}
	if len(whole.Rules) == 0 {
		fmt.Fprintln(out, "Nothing may go out: there is no rule.")
	}
	for _, r := range whole.Rules {
		fmt.Fprintf(out, "%-5s  %s\n", r.Action, r.Text)
		note := r.Rule
		if r.Note != "" {
			note += ": " + r.Note
		}
		fmt.Fprintf(out, "       (%s)\n", note)
	}
	if len(whole.Rules) > 0 {
		fmt.Fprintln(out, "All else is denied. Denials come before what is allowed; then the first rule that fits decides.")
	}
	return describeSession(out, whole.Session)
}

func describeSession(out io.Writer, s policy.Session) error {
	for _, part := range []struct {
		title string
		list  []string
	}{
		{"may read", s.Paths.AllowRead}, {"may read and write", s.Paths.AllowWrite}, {"may not read", s.Paths.DenyRead}, {"may not write", s.Paths.DenyWrite},
		{"gets the variables", s.Env.Pass},
	} {
		if len(part.list) > 0 {
			fmt.Fprintf(out, "%s: %s\n", part.title, strings.Join(part.list, ", "))
		}
	}
	for _, m := range s.Mounts {
		mode := "read-only"
		if m.Write {
			mode = "writable"
		}
		fmt.Fprintf(out, "mount: %s at %s, %s\n", m.Source, m.Target, mode)
	}
	if s.MinIsolation != "" {
		fmt.Fprintf(out, "at least the level %s\n", s.MinIsolation)
	}
	if s.AskTimeout == 0 {
		_, err := fmt.Fprintln(out, "Questions wait 5m0s for a person at the terminal, and without one they are denied.")
		return err
	}
	_, err := fmt.Fprintf(out, "Questions wait %s for a person.\n", s.AskTimeout)
	return err
}
