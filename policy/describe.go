package policy

import (
	"fmt"
	"strings"
)

// Description is one rule in plain words.
type Description struct {
	Rule   string `json:"rule"`
	Action string `json:"action"`
	Text   string `json:"text"`           // what it stands for: "GET, HEAD to api.example.com, paths /users/{name}"
	Note   string `json:"note,omitempty"` // the document's description
}

// Describe lists what the rules allow and deny, in order, for a person or model.
func (p *Policy) Describe() []Description {
	out := make([]Description, 0, len(p.rules))
	for _, r := range p.rules {
		out = append(out, Description{r.Name, r.Action.String(), r.describe(), r.Description})
	}
	return out
}

func (r *Rule) describe() string {
	var b strings.Builder
	switch {
	case r.Protocol == TCP:
		b.WriteString("any TCP stream")
	case r.TLS == Splice:
		b.WriteString("TLS that is not looked into")
	case r.methods != nil:
		b.WriteString(list(r.methods, "no method"))
		if r.Protocol != "" {
			b.WriteString(" by " + string(r.Protocol))
		}
	case r.Action == Deny && r.Protocol == "" && !r.inspects():
		b.WriteString("everything")
	case r.Protocol != "":
		b.WriteString("any " + string(r.Protocol) + " request")
	default:
		b.WriteString("any http or https request")
	}
	hosts := append(patternStrings(r.hosts), prefixStrings(r.addresses)...)
	b.WriteString(" to " + list(hosts, "no host"))
	if r.ports != nil {
		var ports []string
		for _, p := range r.ports {
			ports = append(ports, p.String())
		}
		b.WriteString(", port " + list(ports, "none"))
	}
	if r.paths != nil {
		var paths []string
		for _, p := range r.paths {
			paths = append(paths, p.text)
		}
		b.WriteString(", paths " + list(paths, "none"))
	}
	if r.query != nil {
		b.WriteString(", query " + list(r.query, "none"))
	}
	if r.when != nil {
		b.WriteString(", when " + r.when.text)
	}
	if r.WebSocket {
		b.WriteString(", also WebSockets")
	}
	if len(r.Secrets) > 0 {
		b.WriteString(", with the secret " + list(r.Secrets, "") + " and no other credential")
	}
	if len(r.Internal) > 0 {
		b.WriteString(", also where its address is internal, in " + list(prefixStrings(r.Internal), ""))
	}
	if r.pinned && len(r.Secrets) == 0 {
		b.WriteString(", once a secret is bound to the host")
	}
	for _, l := range []struct {
		n    int64
		what string
	}{{r.Limits.Requests, "requests"}, {r.Limits.Upload, "bytes of upload"}, {r.Limits.Leak, "bytes in names, paths and queries"}} {
		if l.n > 0 {
			fmt.Fprintf(&b, ", at most %d %s", l.n, l.what)
		}
	}
	return b.String()
}

func list(items []string, none string) string {
	if len(items) == 0 {
		return none
	}
	return strings.Join(items, ", ")
}
