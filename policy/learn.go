package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Observation is one outbound act of a run that was recorded.
type Observation struct {
	Host      string   `json:"host"`
	Port      uint16   `json:"port"`
	Scheme    Scheme   `json:"scheme"` // http, https, tls (spliced) or tcp
	Method    string   `json:"method,omitempty"`
	Path      string   `json:"path,omitempty"`
	Query     []string `json:"query,omitempty"` // names
	WebSocket bool     `json:"websocket,omitempty"`
}

// Learned is a document that allows what was observed.
type Learned struct {
	Document []byte // YAML
	// Notes say where it allows more than that.
	Notes []string
}

// widenAbove is how many different names at one place of a path become a
// wildcard. A list of so many is no longer read by anybody.
const widenAbove = 8

// Learn proposes the least policy that allows the observations: exact hosts,
// ports, methods and query names, and exact paths but where more than eight
// names stand at the same place. A host whose requests all fit a profile that
// ships gets the profile. The result has been checked: [Decide] allows each
// observation by it.
func Learn(observations []Observation) (Learned, error) {
	l := &learner{hosts: map[Authority]*learned{}}
	var requests []Request
	for i, o := range observations {
		r, err := o.request()
		if err != nil {
			return Learned{}, fmt.Errorf("observation %d: %w", i+1, err)
		}
		requests = append(requests, r)
		l.see(r)
	}
	d := document{Version: 1, Egress: egressDoc{Rules: l.rules()}}
	text, err := d.yaml()
	if err != nil {
		return Learned{}, err
	}
	p, err := Parse(text)
	if err != nil {
		return Learned{}, fmt.Errorf("what was observed cannot be a policy: %w", err)
	}
	for i, r := range requests {
		if d := Final(Walk(p, r)); d.Verdict != Allow {
			return Learned{}, fmt.Errorf("observation %d, %s, cannot be allowed: %s", i+1, describeRequest(r), d.Why)
		}
	}
	return Learned{text, l.notes}, nil
}

func (o Observation) request() (Request, error) {
	h, err := ParseHost(o.Host)
	if err != nil {
		return Request{}, err
	}
	r := Request{Stage: Head, To: At(h, o.Port), Scheme: o.Scheme, Method: o.Method, WebSocket: o.WebSocket}
	switch o.Scheme {
	case TCP, TLS:
		r.Stage = Connect
		return r, nil
	case HTTP, HTTPS:
	default:
		return r, fmt.Errorf("there is no protocol %q", o.Scheme)
	}
	if !isToken(o.Method) || strings.ToUpper(o.Method) != o.Method {
		return r, fmt.Errorf("%q is no method", o.Method)
	}
	if r.Path, err = CanonicalPath(o.Path); err != nil {
		return r, err
	}
	if len(o.Query) > 0 {
		r.Query = map[string][]string{}
		for _, q := range o.Query {
			r.Query[q] = []string{""}
		}
	}
	return r, nil
}

type learner struct {
	hosts map[Authority]*learned
	notes []string
}

// learned is what was seen of one host and port.
type learned struct {
	streams map[Scheme]bool
	heads   map[head]map[string]bool // the paths
	list    []Request
}

// head is what requests of one rule have in common.
type head struct {
	scheme    Scheme
	method    string
	query     string // names, sorted, joined by NUL
	webSocket bool
}

func (l *learner) see(r Request) {
	h := l.hosts[r.To]
	if h == nil {
		h = &learned{map[Scheme]bool{}, map[head]map[string]bool{}, nil}
		l.hosts[r.To] = h
	}
	h.list = append(h.list, r)
	if r.Stage == Connect {
		h.streams[r.Scheme] = true
		return
	}
	k := head{r.Scheme, r.Method, strings.Join(slices.Sorted(maps.Keys(r.Query)), "\x00"), r.WebSocket}
	if h.heads[k] == nil {
		h.heads[k] = map[string]bool{}
	}
	h.heads[k][r.Path] = true
}

func (l *learner) rules() []ruleDoc {
	var out []ruleDoc
	profiled := map[string]bool{}
	for _, to := range slices.SortedFunc(maps.Keys(l.hosts), func(a, b Authority) int { return cmp.Compare(a.String(), b.String()) }) {
		h := l.hosts[to]
		if name := h.profile(); name != "" {
			if !profiled[name] {
				profiled[name] = true
				l.notes = append(l.notes, fmt.Sprintf("all that was asked of %s fits the profile %s, which allows more of the same kind", to, name))
				out = append(out, ruleDoc{Name: name, Profile: name})
			}
			continue
		}
		base := ruleDoc{}
		if a, literal := to.Host().Addr(); literal {
			base.Addresses, base.Ports = []string{a.String()}, []string{fmt.Sprint(to.Port())}
		} else {
			base.Hosts = []string{to.String()}
		}
		out = append(out, l.hostRules(to, h, base)...)
	}
	return out
}

// hostRules puts methods with the same paths into one rule. What HTTP was seen
// comes before streams, so that a rule for those does not let it pass unseen.
func (l *learner) hostRules(to Authority, h *learned, base ruleDoc) []ruleDoc {
	var out []ruleDoc
	methods := map[string]int{} // by all but the method: its place in out
	order := slices.SortedFunc(maps.Keys(h.heads), func(a, b head) int {
		return cmp.Or(cmp.Compare(a.scheme, b.scheme), cmp.Compare(a.method, b.method), cmp.Compare(a.query, b.query))
	})
	for _, k := range order {
		r := base
		r.Protocol, r.Methods, r.WebSocket, r.Query = string(k.scheme), []string{k.method}, k.webSocket, []string{}
		if k.query != "" {
			r.Query = strings.Split(k.query, "\x00")
		}
		r.Paths = l.paths(fmt.Sprintf("%s %s", k.method, to), slices.Sorted(maps.Keys(h.heads[k])))
		same := strings.Join(append([]string{r.Protocol, k.query, fmt.Sprint(k.webSocket)}, r.Paths...), "\x01")
		if i, seen := methods[same]; seen {
			out[i].Methods = append(out[i].Methods, k.method)
			continue
		}
		methods[same] = len(out)
		out = append(out, r)
	}
	if h.streams[TLS] {
		r := base
		r.Protocol, r.TLS = string(HTTPS), "splice"
		out = append(out, r)
	}
	if h.streams[TCP] {
		r := base
		r.Protocol = string(TCP)
		out = append(out, r)
	}
	for i := range out {
		out[i].Name = to.String()
		if i > 0 {
			out[i].Name += fmt.Sprintf(" (%d)", i+1)
		}
	}
	return out
}

// profile gives the part of a profile that allows all that was seen of a host,
// if there is more than a list would hold.
func (h *learned) profile() string {
	if len(h.list) <= widenAbove {
		return ""
	}
	for _, part := range Profiles() {
		if !strings.Contains(part.Name, "/") {
			continue
		}
		p, err := FromFlags(Flags{Profiles: []string{part.Name}})
		if err != nil {
			continue // a test reads them all
		}
		if !slices.ContainsFunc(h.list, func(r Request) bool { return Final(Walk(p, r)).Verdict != Allow }) {
			return part.Name
		}
	}
	return ""
}

// paths gives patterns for a sorted list of paths. Where more than widenAbove
// names stand behind the same beginning, they become one wildcard.
func (l *learner) paths(what string, paths []string) []string {
	split := make([][]string, len(paths))
	for i, p := range paths {
		split[i] = strings.Split(p[1:], "/")
	}
	patterns := widen(split, 0)
	out := map[string]bool{}
	for _, p := range patterns {
		out["/"+strings.Join(p, "/")] = true
	}
	list := slices.Sorted(maps.Keys(out))
	if len(list) < len(paths) {
		l.notes = append(l.notes, fmt.Sprintf("%s: %d paths became %d: %s", what, len(paths), len(list), strings.Join(list, " ")))
	}
	return list
}

// widen works on paths that are the same up to the segment at.
func widen(paths [][]string, at int) [][]string {
	groups := map[string][][]string{}
	var out [][]string
	for _, p := range paths {
		if at == len(p) {
			out = append(out, p)
			continue
		}
		groups[p[at]] = append(groups[p[at]], p)
	}
	names := 0
	var joined [][]string
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if plainSegment(name) {
			names++
			joined = append(joined, groups[name]...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if names <= widenAbove || !plainSegment(name) {
			out = append(out, widen(groups[name], at+1)...)
		}
	}
	if names > widenAbove {
		for i, p := range joined {
			joined[i] = slices.Clone(p)
			joined[i][at] = "*"
		}
		out = append(out, widen(joined, at+1)...)
	}
	return out
}

// plainSegment tells that * stands for it.
func plainSegment(s string) bool { return s != "" && !strings.Contains(s, "%2F") }

// yaml writes a document for people.
func (d document) yaml() ([]byte, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	root, err := readJSON(text)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}
