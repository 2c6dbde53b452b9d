package policy

import (
	"embed"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// profileFiles are the profiles that ship: one file each, by name.
//
//go:embed profiles/*.yaml
var profileFiles embed.FS

// profileDoc is the form of such a file.
type profileDoc struct {
	Description string             `json:"description"`
	Parts       map[string]partDoc `json:"parts"`
}

type partDoc struct {
	Description string    `json:"description"`
	Rules       []ruleDoc `json:"rules"`
}

// Profile describes one that ships, whole or a part of it.
type Profile struct {
	Name        string `json:"name"` // as --profile and documents take it
	Description string `json:"description"`
}

// Profiles lists them, sorted by name.
func Profiles() []Profile {
	var out []Profile
	files, err := profileFiles.ReadDir("profiles")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".yaml")
		d, err := readProfile(name)
		if err != nil {
			panic(err) // a test reads them all
		}
		out = append(out, Profile{name, d.Description})
		for _, part := range slices.Sorted(maps.Keys(d.Parts)) {
			out = append(out, Profile{name + "/" + part, d.Parts[part].Description})
		}
	}
	return out
}

func readProfile(name string) (*profileDoc, error) {
	text, err := profileFiles.ReadFile("profiles/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	root, err := readYAML(text)
	if err != nil {
		return nil, err
	}
	d := new(profileDoc)
	return d, fill(root, reflect.ValueOf(d).Elem(), "")
}

// expand replaces the rules that name a profile by the profile's.
func expand(rules []ruleDoc) ([]ruleDoc, error) {
	if !slices.ContainsFunc(rules, func(r ruleDoc) bool { return r.Profile != "" }) {
		return rules, nil
	}
	var out []ruleDoc
	for i, r := range rules {
		if r.Profile == "" {
			out = append(out, r)
			continue
		}
		more, err := r.expand(fmt.Sprintf("egress.rules[%d]", i))
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// expand gives the rules of r's profile, for r's hosts if it names any.
func (r ruleDoc) expand(at string) ([]ruleDoc, error) {
	name, part, one := strings.Cut(r.Profile, "/")
	var d *profileDoc
	if isName(name) {
		d, _ = readProfile(name) // one that cannot be read is none
	}
	if d == nil || one && d.Parts[part].Rules == nil {
		var known []string
		for _, p := range Profiles() {
			known = append(known, p.Name)
		}
		return nil, &Error{r.line, join(at, "profile"), fmt.Sprintf("there is no profile %q", r.Profile), "there are " + strings.Join(known, ", ")}
	}
	for _, f := range []struct {
		name  string
		there bool
	}{
		{"methods", r.Methods != nil}, {"paths", r.Paths != nil}, {"query", r.Query != nil}, {"when", r.When != ""}, {"tls", r.TLS != ""},
		{"websocket", r.WebSocket}, {"addresses", r.Addresses != nil}, {"action", r.Action == "deny"},
	} {
		if f.there {
			return nil, &Error{r.line, join(at, f.name), "the profile says that", "remove it, or write the rule out without a profile"}
		}
	}
	base := r.Name
	if base == "" {
		base = r.Profile
	}
	var out []ruleDoc
	for _, key := range slices.Sorted(maps.Keys(d.Parts)) {
		if one && key != part {
			continue
		}
		for _, x := range d.Parts[key].Rules {
			x.line = r.line
			x.Name = base + "/" + x.Name
			if !one {
				x.Name = base + "/" + key + "/" + strings.TrimPrefix(x.Name, base+"/")
			}
			if x.Description == "" {
				x.Description = d.Parts[key].Description
			}
			r.override(&x)
			out = append(out, x)
		}
	}
	return out, nil
}

// override puts what a document says beside a profile into one of its rules.
func (r *ruleDoc) override(x *ruleDoc) {
	if r.Hosts != nil {
		x.Hosts = r.Hosts
	}
	for _, s := range []struct {
		from string
		to   *string
	}{{r.Description, &x.Description}, {r.Action, &x.Action}, {r.Protocol, &x.Protocol}, {r.Secret, &x.Secret},
		{r.Limits.Requests, &x.Limits.Requests}, {r.Limits.Upload, &x.Limits.Upload}, {r.Limits.Leak, &x.Limits.Leak}} {
		if s.from != "" {
			*s.to = s.from
		}
	}
	if r.Ports != nil {
		x.Ports = r.Ports
	}
	if r.Secrets != nil {
		x.Secrets = r.Secrets
	}
	if r.Internal != nil {
		x.Internal = r.Internal
	}
	x.PlainSecrets = r.PlainSecrets
}
