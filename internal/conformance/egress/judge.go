//go:build linux

package egress

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/conformance/egress/internet"
	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

// Report is what the attack program says of one case.
type Report struct {
	ID          string
	Least, Most int
	Twins       []struct{ What, Error string }
	Received    []string
	Notes       []string
	Panic       string
	Took        int64
}

// Verdict is what the suite makes of a case.
type Verdict struct {
	Case
	Report  Report
	Reasons []string // of the denials in the log
	Faults  []string
}

// Judge says what was wrong with a case: nothing, if it passed.
func Judge(c Case, seed string, r *Report, events []internet.Event, record *internet.Record, denials []*audit.Record) Verdict {
	v := Verdict{Case: c}
	fault := func(format string, args ...any) { v.Faults = append(v.Faults, fmt.Sprintf(format, args...)) }
	if r == nil {
		fault("the attack program did not report")
		return v
	}
	v.Report = *r
	if r.Panic != "" {
		fault("the attack program fell: %s", r.Panic)
	}
	for _, e := range record.Sightings(plan.Canary(seed, c.ID, false)) {
		fault("LEAK: the bad canary arrived: %v", e)
	}
	good := record.Sightings(plan.Canary(seed, c.ID, true))
	if !slices.ContainsFunc(good, func(e internet.Event) bool { return e.Kind != "dns" }) {
		fault("the good canary did not arrive")
	}
	if len(r.Twins) == 0 {
		fault("it has no twin")
	}
	for _, t := range r.Twins {
		if t.Error != "" {
			fault("twin %q: %s", t.What, t.Error)
		}
	}
	for _, e := range events {
		if why := Forbidden(e); why != "" {
			fault("LEAK: %s: %v", why, e)
		}
	}
	for _, d := range denials {
		v.Reasons = append(v.Reasons, d.Reason)
		if d.Reason == "" || d.Egress == nil {
			fault("record %d has no reason or no act", d.Seq)
		}
	}
	if n := len(denials); n < r.Least || n > r.Most {
		fault("%d denials in the log, want %d to %d: %s", n, r.Least, r.Most, describe(denials))
	}
	return v
}

// Forbidden says why an event must not be, "" if it may.
func Forbidden(e internet.Event) string {
	server := e.To.Addr() == plan.NameServer && e.To.Port() == 53
	switch e.Kind {
	case "host":
		return "a service of the host was reached"
	case "udp", "frame":
		return "something other than TCP came"
	case "conn":
		if e.Host == "" && !server {
			return "an address of no host was reached"
		}
		if slices.Contains(plan.Hostile(), e.Host) {
			return "a host of the attacker's was reached"
		}
	case "dns":
		if slices.ContainsFunc(plan.Hostile(), func(h string) bool { return e.Host == h || strings.HasSuffix(e.Host, "."+plan.Evil) }) {
			return "a name of the attacker's was asked for"
		}
	}
	return ""
}

func describe(list []*audit.Record) string {
	var s []string
	for _, d := range list {
		e := d.Egress
		if e == nil {
			e = &audit.Egress{}
		}
		s = append(s, fmt.Sprintf("#%d %s %s %s:%d %s %.40q sni %q = %s", d.Seq, d.Kind, e.Via, e.Host, e.Port, e.Method, e.Path, e.SNI, d.Reason))
	}
	return "\n\t" + strings.Join(s, "\n\t")
}

// ReadLog reads an audit log.
func ReadLog(dir string) (list []*audit.Record, err error) {
	r, err := audit.OpenReader(dir)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		line, err := r.Next()
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		rec, err := audit.Parse(bytes.Clone(line))
		if err != nil {
			return list, err
		}
		list = append(list, rec)
	}
}

// Denials splits a log's denials by the case that they belong to: from its
// beginning to that of the next.
func Denials(log []*audit.Record) map[string][]*audit.Record {
	m := map[string][]*audit.Record{}
	current := map[string]string{} // by sandbox
	for _, rec := range log {
		if rec.Kind == "http" && rec.Egress != nil && rec.Egress.Host == plan.Marker {
			mark(current, rec.Sandbox, rec.Egress.Path)
			continue
		}
		if rec.Kind == audit.KindEnd && rec.Outcome != nil && strings.HasPrefix(rec.Outcome.Error, "secret_") {
			// A request that was allowed and whose body was then ended.
			ended := *rec
			ended.Reason, ended.Egress = rec.Outcome.Error, &audit.Egress{}
			m[current[rec.Sandbox]] = append(m[current[rec.Sandbox]], &ended)
		}
		if rec.Decision == "deny" && rec.Kind != audit.KindEnd {
			m[current[rec.Sandbox]] = append(m[current[rec.Sandbox]], rec)
		}
	}
	return m
}

// Windows splits events likewise. Cases of several sandboxes at once share them.
func Windows(events []internet.Event) map[string][]internet.Event {
	m := map[string][]internet.Event{}
	open := map[string]bool{}
	for _, e := range events {
		if e.Kind == "request" && e.Host == plan.Marker {
			what, id, _ := strings.Cut(strings.TrimPrefix(e.URI, "/"), "/")
			if what == "begin" || what == "end" {
				open[id] = what == "begin"
			}
			continue
		}
		for id, now := range open {
			if now {
				m[id] = append(m[id], e)
			}
		}
	}
	return m
}

func mark(current map[string]string, who, path string) {
	what, id, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if what == "begin" { // a client may hear of a denial before it is written
		current[who] = id
	}
}
