package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/cli/values"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/project"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// netFlags say what a sandbox may reach. Without any of them it has no network,
// and no gate is started.
type netFlags struct {
	none       netValue
	allow      []string
	profiles   []string
	secrets    []string
	policy     string
	project    *project.File // the policy of a trusted bailey.yaml
	askTimeout time.Duration
}

func (n *netFlags) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&n.allow, "allow", nil, "let it reach a host by name: HOST[:PORT]")
	fs.StringArrayVar(&n.profiles, "profile", nil, "let it do what a `NAME`d profile allows; `bailey policy profiles` lists them")
	fs.StringArrayVar(&n.secrets, "secret", nil, "put a secret into requests to a host, unseen inside: NAME@HOST")
	fs.StringVar(&n.policy, "policy", "", "what it may do, as the `FILE` says (docs/policy.md)")
	fs.Var(values.Duration{To: &n.askTimeout}, "ask-timeout", "how long a rule that asks waits for an answer")
	fs.Var(&n.none, "net", "`none` is no network, which is the default, whatever bailey.yaml says")
}

// netValue is --net, which has one value.
type netValue struct{ set bool }

func (v *netValue) String() string {
	if v != nil && v.set {
		return "none"
	}
	return ""
}

func (v *netValue) Type() string { return "none" }

func (v *netValue) Set(s string) error {
	if s != "none" {
		return bailey.Errorf(bailey.CodeUsage, "read "+strconv.Quote(s), "name what it may reach by --allow, --profile or --policy; there is no network without rules",
			"a network is none, or what is allowed by name")
	}
	v.set = true
	return nil
}

// given says that a network was asked for.
func (n *netFlags) given() bool {
	return len(n.allow)+len(n.profiles)+len(n.secrets) > 0 || n.policy != "" || n.project != nil
}

// check refuses what cannot be meant.
func (n *netFlags) check() error {
	if n.none.set && n.given() {
		return bailey.Errorf(bailey.CodeUsage, "give it a network", "leave one of them out", "--net none and what it may reach exclude each other")
	}
	for _, s := range n.secrets {
		if name, host, ok := strings.Cut(s, "@"); !ok || name == "" || host == "" {
			return bailey.Errorf(bailey.CodeUsage, "use the secret "+strconv.Quote(s), "write it as NAME@HOST, as in GITHUB_TOKEN@api.github.com", "it does not say for which host")
		}
	}
	return nil
}

// startGate starts the gate of a run that has a network, and takes from a policy
// document what it says of the run itself. The caller closes f.Gate.
func (f *runFlags) startGate(inv *invocation, h *run.Host, ws string) error {
	n := &f.net
	if !n.given() {
		if n.askTimeout > 0 {
			return bailey.Errorf(bailey.CodeUsage, "wait for answers", "leave --ask-timeout out", "there is no network, so nothing asks")
		}
		return nil
	}
	o := run.GateOptions{
		Policy:     control.Policy{Allow: n.allow, Profiles: n.profiles, Secrets: n.secrets},
		AskTimeout: n.askTimeout,
		Notice:     func(text string) { inv.Say("%s", terminal.Printable(text)) },
		Lost: func(words string) {
			inv.Say("the gate has ended, and nothing gets out any more; the command goes on%s", said(words))
		},
	}
	if n.policy != "" {
		var err error
		if o.Policy.Document, err = run.ReadPolicy(n.policy); err != nil {
			return err
		}
		o.Follow = true
	}
	if n.project != nil { // not followed: what was trusted are these bytes
		o.Policy.Document = &control.Document{Name: n.project.Path, Text: n.project.Data}
	}
	var err error
	if f.Gate, err = h.StartGate(func() (string, error) { return program("baileyd") }, o); err != nil {
		return err
	}
	if o.Policy.Document != nil {
		checked, err := f.Gate.Check(context.Background())
		if err != nil {
			return err
		}
		if n.project != nil {
			if err := narrows(&checked.Session); err != nil {
				return err
			}
		}
		min, err := f.Hold(checked.Session, ws)
		f.min = max(f.min, min)
		return err
	}
	return nil
}

// narrows holds the policy of a project to what a project's file may do: beside
// the network it makes a sandbox narrower, never wider.
func narrows(s *control.Session) error {
	pass := slices.IndexFunc(s.Env, func(kv string) bool { return !strings.Contains(kv, "=") })
	if len(s.Mounts)+len(s.AllowRead)+len(s.AllowWrite) > 0 || pass >= 0 {
		return bailey.Errorf(bailey.CodeUntrusted, "use the policy of "+project.FileName, "give it yourself, with --policy",
			"it shows more of this machine than a project may: mounts, paths that it allows, or variables that it passes on")
	}
	d, l := run.Defaults(), &s.Limits
	atMost(&l.CPUs, d.CPUs)
	atMost(&l.Memory, d.Memory)
	atMost(&l.Pids, d.Pids)
	atMost(&l.Disk, d.Disk)
	atMost(&l.IO, d.IO)
	atMost(&l.Output, d.Output)
	atMost(&l.Timeout, d.Timeout)
	return nil
}

// atMost takes away a limit that is wider than the one in force without it.
func atMost[T ~int64 | ~float64](limit *T, byDefault T) {
	if byDefault > 0 && *limit > byDefault {
		*limit = 0
	}
}

func said(words string) string {
	if words == "" {
		return ""
	}
	if i := strings.LastIndexByte(words, '\n'); i >= 0 {
		words = words[i+1:]
	}
	return " (" + terminal.Printable(words) + ")"
}

// shownDenials is how many denials a person is told of before the rest is
// counted.
const shownDenials = 10

// shownDenial bounds each part of a denial, in characters.
const shownDenial = 300

// tellEgress says what was refused.
func tellEgress(inv *invocation, e *run.Egress) {
	if e == nil {
		return
	}
	if e.Lost {
		inv.Say("the gate did not last: what was refused since then is not known, and nothing got out")
	}
	hint := ""
	for i, d := range e.Denials {
		if i == shownDenials {
			inv.Say("and %d more that differ; `bailey audit show` has all", len(e.Denials)-i)
			break
		}
		times := ""
		if d.Count > 1 {
			times = " (" + strconv.FormatInt(d.Count, 10) + " times)"
		}
		inv.Say("denied%s: %s: %s [%s]", times, terminal.Shorten(d.What, shownDenial), terminal.Shorten(d.Why, shownDenial), terminal.Printable(d.Reason))
		if d.Rule != "" {
			inv.Say("  by the rule %s", terminal.Shorten(d.Rule, shownDenial))
		}
		if d.Ask != "" {
			inv.Say("  %s", terminal.Shorten(d.Ask, shownDenial))
		}
		hint = d.Hint
	}
	if hint != "" {
		inv.Say("%s", terminal.Shorten(hint, shownDenial))
	}
	if e.Further > 0 {
		inv.Say("and %d more denials; `bailey audit show` has all", e.Further)
	}
}
