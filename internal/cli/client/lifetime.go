package client

import "github.com/bailey-sandbox/bailey/api"

// lifetime is a flag for a length of time that may be never.
type lifetime struct{ to *api.Lifetime }

func (l lifetime) String() string {
	if l.to == nil {
		return ""
	}
	b, _ := l.to.MarshalText() // it never fails
	return string(b)
}

func (l lifetime) Type() string       { return "DURATION" }
func (l lifetime) Set(s string) error { return l.to.UnmarshalText([]byte(s)) }
