package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/terminal"
	"github.com/bailey-sandbox/bailey/policy"
)

const policyUsage = `Usage: bailey policy check [flags] URL
       bailey policy explain [flags] [URL|/PATH]
       bailey policy diff [flags] OLD NEW
       bailey policy test [flags] FILE...
       bailey policy learn [flags] -- CMD...
       bailey policy learn [-o FILE] --from-audit RUN
       bailey policy profiles [--json]

Says what a policy allows, and why. Nothing is connected to; the answer is the
gate's own.

  check     may a request be made: exit code 0 yes, 1 no, 3 a person is asked
  explain   which rule says so, and what would allow it; of a path, whether the
            sandbox may read and write it; of nothing, all that is allowed
  diff      what NEW allows or denies and OLD does not: exit code 1 if NEW allows more
  test      holds a policy against tables of expectations: exit code 1 if one fails
  learn     runs a command, with everything let out, or takes a run that was, and
            proposes the least policy for what it did
  profiles  lists what --profile takes

A URL begins with http, https, ws, wss or tcp, as tcp://db.example.com:5432.

`

// The exit codes of a policy's answers.
const (
	exitDenied = 1
	exitAsks   = 3
)

// policyFlags are the command line of `bailey policy`.
type policyFlags struct {
	file   string
	method string
	body   string
	from   string
	out    string
	asJSON bool
	add    policy.Flags
}

func policyCommand(_ context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) < 1 {
		fmt.Fprint(stderr, policyUsage)
		return bailey.ExitBailey
	}
	// It has nothing to end in order, and may wait for a document that does not come.
	signal.Reset()
	var f policyFlags
	flags := pflag.NewFlagSet("bailey policy", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&f.file, "policy", "", "the policy document, - for standard input")
	flags.StringArrayVar(&f.add.Allow, "allow", nil, "allow HOST[:PORT] as well")
	flags.StringArrayVar(&f.add.Profiles, "profile", nil, "add this profile, NAME or NAME@HOST")
	flags.StringArrayVar(&f.add.Secrets, "secret", nil, "bind a secret, NAME@HOST")
	flags.StringVar(&f.method, "method", "", "check, explain: the request's method (default GET)")
	flags.StringVar(&f.body, "body", "", "check, explain: the request's body")
	flags.StringVar(&f.from, "from-audit", "", "learn: from the run of this id, as the log has it")
	flags.StringVarP(&f.out, "out", "o", "", "learn: write the policy to this file")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	err := flags.Parse(args[1:])
	if errors.Is(err, pflag.ErrHelp) || args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		fmt.Fprint(stdout, policyUsage+flags.FlagUsages())
		return 0
	}
	usage := func(format string, args ...any) int {
		return fail(stderr, f.asJSON, bailey.Errorf(bailey.CodeUsage, "understand the command line", "see bailey policy --help", format, args...))
	}
	if err != nil {
		return usage("%w", err)
	}
	rest := flags.Args()
	bounds, known := map[string][2]int{"check": {1, 1}, "explain": {0, 1}, "diff": {2, 2}, "test": {1, 1 << 20}, "profiles": {0, 0}, "learn": {0, 0}}[args[0]]
	switch {
	case !known:
		return usage("there is no command %q", args[0])
	case len(rest) < bounds[0] || len(rest) > bounds[1]:
		return usage("%s takes %s, not %d arguments", args[0], map[string]string{"check": "one URL", "explain": "a URL, a path or nothing", "diff": "two policies", "test": "tables of expectations", "profiles": "nothing", "learn": "its command behind --"}[args[0]], len(rest))
	}
	status := 0
	out := new(bytes.Buffer)
	switch args[0] {
	case "check":
		status, err = f.check(out, rest[0])
	case "explain":
		status, err = f.explain(out, rest)
	case "diff":
		status, err = f.diff(out, rest[0], rest[1])
	case "test":
		status, err = f.test(out, rest)
	case "learn":
		err = f.learn(out, stderr)
	case "profiles":
		err = f.profiles(out)
	}
	if err == nil {
		text := out.String()
		if !f.asJSON {
			text = terminal.PrintableText(text, "\n") // a document may be anybody's
		}
		_, err = io.WriteString(stdout, text)
	}
	if err != nil {
		return fail(stderr, f.asJSON, err)
	}
	return status
}

// policy gives the policy of the flags.
func (f *policyFlags) policy() (*policy.Policy, error) {
	var p *policy.Policy
	if f.file != "" {
		var err error
		if p, err = readPolicy(f.file); err != nil {
			return nil, err
		}
	}
	return merged(p, f.add)
}

func merged(p *policy.Policy, add policy.Flags) (*policy.Policy, error) {
	out, err := policy.Merge(p, add)
	if err != nil {
		return nil, policyError("the command line", err)
	}
	return out, nil
}

func readPolicy(name string) (*policy.Policy, error) {
	text, err := readDocument(name)
	if err != nil {
		return nil, err
	}
	p, err := policy.Parse(text)
	if err != nil {
		return nil, policyError(name, err)
	}
	return p, nil
}

// maxPolicyFile is more than a document may have, so that too long a one gives
// the parser's own error.
const maxPolicyFile = 8 << 20

func readDocument(name string) ([]byte, error) {
	in := io.Reader(os.Stdin)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			code := bailey.CodeUsage // as run.ReadPolicy has it
			if errors.Is(err, fs.ErrNotExist) {
				code = bailey.CodeNotFound
			}
			return nil, bailey.Errorf(code, "read the policy", "name a file that can be read", "%w", err)
		}
		defer file.Close() // it was only read
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPolicyFile))
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeUsage, "read the policy", "name a file that can be read", "%w", err)
	}
	return text, nil
}

// answer is what check and explain print of a request.
type answer struct {
	Verdict string       `json:"verdict"` // allow, deny or ask
	What    string       `json:"what"`
	Rule    string       `json:"rule,omitempty"`
	Reason  string       `json:"reason"`
	Why     string       `json:"why"`
	Mode    policy.Mode  `json:"mode"`
	Policy  string       `json:"policy"` // digest
	Secrets []string     `json:"secrets,omitempty"`
	Steps   []answerStep `json:"steps,omitempty"`
	Would   string       `json:"would_allow,omitempty"`
}

type answerStep struct {
	Stage   string `json:"stage"`
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
}

func (f *policyFlags) ask(p *policy.Policy, target string) (answer, error) {
	r, err := policy.ParseTarget(target, f.method)
	if err != nil {
		return answer{}, bailey.Errorf(bailey.CodeUsage, "read "+target, "write it as https://host/path, or tcp://host:port", "%w", err)
	}
	r.Body, r.BodySize = []byte(f.body), int64(len(f.body))
	steps := policy.Walk(p, r)
	d := policy.Final(steps)
	a := answer{Verdict: d.Verdict.String(), What: strings.TrimSpace(r.Method + " " + target), Reason: d.Reason, Why: d.Why, Mode: p.Mode(), Policy: p.Digest()}
	if d.Rule != nil {
		a.Rule = d.Rule.Name
		if d.Verdict != policy.Deny {
			a.Secrets = d.Rule.Secrets
		}
	}
	for _, s := range steps {
		a.Steps = append(a.Steps, answerStep{s.Request.Stage.String(), s.Decision.Verdict.String(), s.Decision.Why})
	}
	if d.Verdict == policy.Deny {
		a.Would = policy.WouldAllow(p, r)
	}
	return a, nil
}

func (a answer) status() int {
	switch a.Verdict {
	case policy.Allow.String():
		return 0
	case policy.Ask.String():
		return exitAsks
	}
	return exitDenied
}

func (f *policyFlags) check(out io.Writer, target string) (int, error) {
	p, err := f.policy()
	if err != nil {
		return 0, err
	}
	a, err := f.ask(p, target)
	if err != nil {
		return 0, err
	}
	if f.asJSON {
		a.Steps, a.Would = nil, ""
		return a.status(), json.NewEncoder(out).Encode(a)
	}
	_, err = fmt.Fprintf(out, "%s: %s\n", a.Verdict, a.Why)
	return a.status(), err
}

func (f *policyFlags) profiles(out io.Writer) error {
	list := policy.Profiles()
	if f.asJSON {
		return json.NewEncoder(out).Encode(list)
	}
	for _, p := range list {
		if _, err := fmt.Fprintf(out, "%-26s %s\n", p.Name, p.Description); err != nil {
			return err
		}
	}
	return nil
}
