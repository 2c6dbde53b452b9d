package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Change is one thing that two policies judge differently.
type Change struct {
	What   string `json:"what"` // "POST https://api.github.com/repos/any"
	Before string `json:"before"`
	After  string `json:"after"`
}

// Difference is what changes when one policy takes another's place. It is found
// by asking both about the requests that their rules tell apart.
type Difference struct {
	Wider    []Change `json:"wider"`    // more is allowed, or with less inspection
	Narrower []Change `json:"narrower"` // less is
	Other    []Change `json:"other"`
	// Incomplete says that there were more kinds of requests than were asked.
	Incomplete bool `json:"incomplete,omitempty"`

	stream struct { // the last one that was compared
		to     Authority
		change Change
	}
}

// Diff compares. Either policy may be nil, which allows nothing.
func Diff(before, after *Policy) Difference {
	var d Difference
	if before == nil {
		before = &Policy{index: newIndex(nil)}
	}
	if after == nil {
		after = &Policy{index: newIndex(nil)}
	}
	list, full := samples(before, after)
	d.Incomplete = full
	for _, g := range grouped(list) {
		d.group(before, after, g)
	}
	d.session(before, after)
	return d
}

// grouped cuts samples where host, port or protocol change.
func grouped(list []Request) [][]Request {
	var out [][]Request
	for start, i := 0, 1; i <= len(list); i++ {
		if i == len(list) || list[i].To != list[start].To || list[i].Scheme != list[start].Scheme || list[i].WebSocket != list[start].WebSocket {
			out = append(out, list[start:i])
			start = i
		}
	}
	return out
}

// group compares by requests to one host in one protocol. Where all of them
// change in the same way, that is one change; what a stream of any kind may do
// is not said again of requests.
func (d *Difference) group(before, after *Policy, list []Request) {
	var changes []Change
	var directions []int
	same := true
	for _, r := range list {
		r.symbolic = true
		a, b := before.outcome(r), after.outcome(r)
		c := Change{describeRequest(r), a.text(), b.text()}
		same = same && (len(changes) == 0 || c.Before == changes[0].Before && c.After == changes[0].After)
		changes, directions = append(changes, c), append(directions, a.to(b))
	}
	first := list[0]
	stream := d.stream.to == first.To && d.stream.change.Before == changes[0].Before && d.stream.change.After == changes[0].After
	if first.Scheme == TCP {
		d.stream.to, d.stream.change = first.To, changes[0]
	}
	if same && stream {
		return
	}
	if same && len(list) > 1 {
		changes[0].What = "any request to " + strings.TrimSuffix(strings.TrimPrefix(changes[0].What, first.Method+" "), first.Path)
		changes = changes[:1]
	}
	for i, c := range changes {
		if c.Before != c.After {
			d.add(c, directions[i])
		}
	}
}

// add files a change by the direction that it goes.
func (d *Difference) add(c Change, direction int) {
	switch {
	case direction > 0:
		d.Wider = append(d.Wider, c)
	case direction < 0:
		d.Narrower = append(d.Narrower, c)
	default:
		d.Other = append(d.Other, c)
	}
}

// outcome is what becomes of a request, as far as it matters to whoever
// compares. Greater reach is more that can happen.
type outcome struct {
	reach   int
	what    string
	detail  []string
	secrets []string
	limits  RuleLimits
}

// to gives the direction from a to b: more reach, then a secret more, then a
// limit less or greater.
func (a outcome) to(b outcome) int {
	if a.reach != b.reach {
		return b.reach - a.reach
	}
	for _, s := range b.secrets {
		if !slices.Contains(a.secrets, s) {
			return 1
		}
	}
	if len(b.secrets) < len(a.secrets) {
		return -1
	}
	direction := 0
	for _, l := range [][2]int64{{a.limits.Requests, b.limits.Requests}, {a.limits.Upload, b.limits.Upload}, {a.limits.Leak, b.limits.Leak}} {
		switch {
		case l[0] == l[1]:
		case l[1] == 0 || l[0] != 0 && l[1] > l[0]:
			return 1
		default:
			direction = -1
		}
	}
	return direction
}

func (o outcome) text() string {
	return strings.Join(append([]string{o.what}, o.detail...), ", ")
}

func (p *Policy) outcome(r Request) outcome {
	d := Final(Walk(p, r))
	var o outcome
	switch {
	case p.mode == Audit && d.Reason != ReasonMetadata && d.Verdict == Deny:
		return outcome{reach: 4, what: "passes, since the mode is audit"}
	case d.Verdict == Deny:
		return outcome{what: "denied"}
	case d.Verdict == Ask:
		o = outcome{reach: 2, what: "asks"}
	case d.Verdict == Continue:
		o = outcome{reach: 1, what: "allowed on a condition", detail: []string{d.Why}}
		if d.Rule != nil && d.Rule.when != nil {
			o.detail = []string{"when " + d.Rule.when.text}
		}
	default:
		o = outcome{reach: 3, what: "allowed"}
	}
	if d.Rule.TLS == Splice {
		o.detail = append(o.detail, "not looked into")
		o.reach++
	}
	o.secrets, o.limits = d.Rule.Secrets, d.Rule.Limits
	if len(d.Rule.Secrets) > 0 {
		o.detail = append(o.detail, "with the secret "+strings.Join(d.Rule.Secrets, ", "))
	}
	if l := d.Rule.Limits; l != (RuleLimits{}) {
		o.detail = append(o.detail, fmt.Sprintf("limits %d/%d/%d", l.Requests, l.Upload, l.Leak))
	}
	return o
}

func describeRequest(r Request) string {
	if r.Scheme == TCP {
		return "tcp " + r.To.String()
	}
	scheme := string(r.Scheme)
	if r.WebSocket {
		scheme = strings.Replace(scheme, "http", "ws", 1)
	}
	to := r.To.String()
	if r.Scheme == HTTPS && r.To.Port() == 443 || r.Scheme == HTTP && r.To.Port() == 80 {
		to = to[:strings.LastIndexByte(to, ':')]
	}
	s := r.Method + " " + scheme + "://" + to + r.Path
	for k, v := range r.Query {
		s += "?" + k
		if v[0] != "" {
			s += "=" + v[0]
		}
	}
	return s
}

// session compares what the documents say of the sandbox.
func (d *Difference) session(before, after *Policy) {
	a, b := before.session, after.session
	paths := slices.Concat(a.Paths.all(), b.Paths.all())
	slices.Sort(paths)
	for _, p := range slices.Compact(paths) {
		for _, file := range []string{p, strings.TrimSuffix(p, "/") + "/any"} {
			for access, word := range map[Access]string{Read: "read ", Write: "write "} {
				x, y := a.Paths.Decide(file, access).Verdict, b.Paths.Decide(file, access).Verdict
				if x != y {
					d.add(Change{word + file, x.String(), y.String()}, int(y)-int(x))
				}
			}
		}
	}
	d.lists("mount", mountStrings(a.Mounts), mountStrings(b.Mounts))
	d.lists("variable", a.Env.strings(), b.Env.strings())
	d.lists("port from outside", portStrings(a.Ports), portStrings(b.Ports))
	level := func(s string) int { return slices.Index(levels, s) }
	if a.MinIsolation != b.MinIsolation {
		d.add(Change{"weakest isolation level", orNone(a.MinIsolation), orNone(b.MinIsolation)}, level(a.MinIsolation)-level(b.MinIsolation))
	}
	if before.sealed != after.sealed {
		direction := 1
		if after.sealed {
			direction = -1
		}
		d.add(Change{"sealed against flags", fmt.Sprint(before.sealed), fmt.Sprint(after.sealed)}, direction)
	}
	if a.AskTimeout != b.AskTimeout {
		d.add(Change{"questions wait", a.AskTimeout.String(), b.AskTimeout.String()}, 0)
	}
	d.limits("egress limit of ", reflect.ValueOf(before.limits), reflect.ValueOf(after.limits))
	d.limits("sandbox limit of ", reflect.ValueOf(a.Limits), reflect.ValueOf(b.Limits))
}

func (d *Difference) lists(what string, before, after []string) {
	for _, s := range after {
		if !slices.Contains(before, s) {
			d.add(Change{what + " " + s, "no", "yes"}, 1)
		}
	}
	for _, s := range before {
		if !slices.Contains(after, s) {
			d.add(Change{what + " " + s, "yes", "no"}, -1)
		}
	}
}

// limits compares the fields of two structs of numbers of which 0 is no limit.
func (d *Difference) limits(what string, before, after reflect.Value) {
	for i := range before.NumField() {
		var x, y float64
		if f := before.Field(i); f.CanFloat() {
			x, y = f.Float(), after.Field(i).Float()
		} else {
			x, y = float64(f.Int()), float64(after.Field(i).Int())
		}
		if x == y {
			continue
		}
		direction := -1
		if y == 0 || x != 0 && y > x {
			direction = 1
		}
		d.add(Change{what + strings.ToLower(before.Type().Field(i).Name), fmt.Sprint(before.Field(i)), fmt.Sprint(after.Field(i))}, direction)
	}
}

func (r PathRules) all() []string {
	return slices.Concat(r.AllowRead, r.AllowWrite, r.DenyRead, r.DenyWrite)
}

func mountStrings(list []Mount) []string {
	var out []string
	for _, m := range list {
		mode := "read-only"
		if m.Write {
			mode = "to write"
		}
		out = append(out, fmt.Sprintf("%s at %s, %s", m.Source, m.Target, mode))
	}
	return out
}

func (e Env) strings() []string {
	out := slices.Clone(e.Pass)
	for _, k := range slices.Sorted(maps.Keys(e.Set)) {
		out = append(out, k+"="+e.Set[k])
	}
	return out
}

func portStrings(list []uint16) []string {
	var out []string
	for _, p := range list {
		out = append(out, fmt.Sprint(p))
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
