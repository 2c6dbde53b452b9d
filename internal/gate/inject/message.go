package inject

import (
	"context"
	"encoding/json"

	"github.com/bailey-sandbox/bailey/policy"
)

// Outgoing implements act.Secrets. Values are put into the string values of
// messages that are JSON texts, where the binding says websocket.
func (g *Grants) Outgoing(text []byte, pr policy.Request, rule *policy.Rule) ([]byte, error) {
	j := g.job(context.Background(), pr, rule)
	if j.any(inWebSocket) && json.Valid(text) {
		return j.fillJSON(text, inWebSocket)
	}
	return text, j.scan.check(string(text), "the message")
}

// Incoming implements act.Secrets.
func (g *Grants) Incoming(text []byte, found func(n int)) []byte {
	clean := g.scrubbing().replace(string(text), found)
	if len(clean) == len(text) && clean == string(text) {
		return text
	}
	return []byte(clean)
}

// Clean implements act.Secrets: values and placeholders become the names of
// their secrets.
func (g *Grants) Clean(text string) string {
	s := g.scrubbing()
	g.mu.RLock()
	scan, stored := g.scan, g.stored
	g.mu.RUnlock()
	text = named(s.m, text, "secret", func(name string) string { return name })
	return named(scan.m, text, "placeholder", func(binding string) string {
		if binding == "" {
			return "of another sandbox"
		}
		return stored[binding]
	})
}

func named(m *matcher, text, what string, name func(string) string) string {
	hits := m.all(text)
	for i := len(hits) - 1; i >= 0; i-- {
		h := hits[i]
		text = text[:h.start] + "[" + what + " " + name(h.name) + "]" + text[h.end:]
	}
	return text
}
