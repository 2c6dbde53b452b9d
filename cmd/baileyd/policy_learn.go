package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
	"github.com/bailey-sandbox/bailey/policy"
)

// proposal is what `bailey policy learn` prints with --json.
type proposal struct {
	Document string   `json:"document"` // YAML
	Acts     int      `json:"acts"`     // that it was made from
	Notes    []string `json:"notes"`
}

// learn proposes a policy from what the audit log has of a run.
func (f *policyFlags) learn(out, stderr io.Writer) error {
	if f.from == "" {
		return bailey.Errorf(bailey.CodeUsage, "learn a policy", "as in: bailey policy learn --from-audit RUN", "it is not said which run to learn from")
	}
	p, err := propose(f.from)
	if err != nil {
		return err
	}
	if f.out != "" {
		if err := os.WriteFile(f.out, []byte(p.Document), 0o644); err != nil {
			return bailey.Errorf(bailey.CodeStorage, "write the policy", "", "%w", err)
		}
	}
	if f.asJSON {
		return json.NewEncoder(out).Encode(p)
	}
	for _, n := range p.Notes {
		fmt.Fprintln(stderr, "bailey: note:", terminal.Printable(n))
	}
	if f.out == "" {
		_, err = io.WriteString(out, p.Document)
	}
	return err
}

// propose reads the log.
func propose(sandbox string) (proposal, error) {
	what := "learn from the run " + sandbox
	home, err := folder.Open()
	if err != nil {
		return proposal{}, err
	}
	r, err := audit.OpenReader(auditPath(home.Path()))
	if err != nil {
		return proposal{}, bailey.Errorf(bailey.CodeNotFound, what, "run something first", "there is no log: %w", err)
	}
	defer r.Close()
	l := lesson{notes: map[string]bool{}}
	known := false
	for {
		rec, err := nextRecord(r)
		if err == io.EOF {
			break
		}
		if err != nil {
			return proposal{}, err
		}
		if rec.Sandbox == sandbox {
			known = true
			l.take(rec)
		}
	}
	if !known {
		return proposal{}, bailey.Errorf(bailey.CodeNotFound, what, "`bailey audit show` names the sandboxes", "the log does not have it")
	}
	learned, err := policy.Learn(l.seen)
	if err != nil {
		return proposal{}, bailey.Errorf(bailey.CodePolicyInvalid, what, "write its policy by hand; `bailey audit show --sandbox "+sandbox+"` has what it did", "%w", err)
	}
	return proposal{string(learned.Document), len(l.seen), append(slices.Sorted(maps.Keys(l.notes)), learned.Notes...)}, nil
}

// lesson is what a run did.
type lesson struct {
	seen  []policy.Observation
	notes map[string]bool
}

func (l *lesson) take(r *audit.Record) {
	e := r.Egress
	if e == nil {
		return
	}
	to := fmt.Sprintf("%s:%d", e.Host, e.Port)
	if r.Decision != "allow" {
		switch r.Reason {
		case "address_internal":
			l.notes[fmt.Sprintf("%s leads to an address that is not public: it was refused, and the policy does not allow it; a rule with `internal` can", to)] = true
		case policy.ReasonMetadata, "address_metadata":
			l.notes[to+" is a metadata service, which no policy can allow"] = true
		default:
			if r.Kind != "name" && r.Kind != audit.KindApproval {
				l.notes[fmt.Sprintf("%s was refused [%s], and the policy does not allow it", to, r.Reason)] = true
			}
		}
		return
	}
	o := policy.Observation{Host: e.Host, Port: e.Port, Scheme: policy.Scheme(e.Scheme), Method: e.Method, Path: e.Path, Query: e.Query}
	switch r.Kind {
	case "http":
	case "websocket":
		o.WebSocket = true
	case "stream":
		o = policy.Observation{Host: e.Host, Port: e.Port, Scheme: policy.TCP}
		if e.Scheme == string(policy.TLS) || e.SNI != "" {
			o.Scheme = policy.TLS
			l.notes["TLS to "+to+" was not looked into, and is not under the policy either"] = true
		}
	default:
		return
	}
	if len(e.Secrets) > 0 {
		var flags []string
		for _, s := range e.Secrets {
			flags = append(flags, "--secret "+s+"@"+e.Host)
		}
		l.notes[fmt.Sprintf("requests to %s carried a secret, which the policy does not name: go on giving %s, which allows every request to that host", to, strings.Join(flags, " "))] = true
	}
	l.seen = append(l.seen, o)
}
