package vault

import (
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/secrets"
)

// message is one line of the pipe, as JSON: the mark of placeholders, a secret's
// state, or why it must not be used; or a sealed blob.
type message struct {
	Mark string `json:"mark,omitempty"`
	// Sealed is the kind of a blob, of which Value is the content, once.
	Sealed  string        `json:"sealed,omitempty"`
	Name    string        `json:"name,omitempty"`
	Version int           `json:"version,omitempty"`
	Value   []byte        `json:"value,omitempty"` // nil for a revoked one
	Old     [][]byte      `json:"old,omitempty"`
	Expires time.Time     `json:"expires,omitzero"`
	Error   *bailey.Error `json:"error,omitempty"`
}

func stateOf(c *secrets.Current) message {
	m := message{Name: c.Name, Version: c.Version, Expires: c.Expires}
	if c.Value != nil {
		m.Value = c.Value.Bytes()
	}
	for _, o := range c.Old {
		m.Old = append(m.Old, o.Bytes())
	}
	return m
}

func (m message) current() *secrets.Current {
	c := &secrets.Current{Name: m.Name, Version: m.Version, Expires: m.Expires}
	if m.Value != nil {
		c.Value = secrets.NewValue(m.Value)
	}
	for _, o := range m.Old {
		c.Old = append(c.Old, secrets.NewValue(o))
	}
	return c
}
