package api

import (
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Duration is a length of time, on the wire a text as time.ParseDuration reads
// it: "1.5s", "30m".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. Negative lengths are errors.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil || v < 0 {
		return bailey.Errorf(bailey.CodeUsage, "read the duration "+string(b), "write it like 90s or 30m", "it is no length of time")
	}
	*d = Duration(v)
	return nil
}

// Lifetime is how long a sandbox is kept: a Duration greater than 0, or never
// ending. The zero Lifetime was not said.
type Lifetime struct {
	After Duration
	Never bool
}

// MarshalText implements encoding.TextMarshaler.
func (l Lifetime) MarshalText() ([]byte, error) {
	if l.Never {
		return []byte("never"), nil
	}
	if l.After == 0 {
		return nil, nil
	}
	return l.After.MarshalText()
}

// UnmarshalText implements encoding.TextUnmarshaler. 0 is an error: it could
// mean at once or never, and people have lost work to either.
func (l *Lifetime) UnmarshalText(b []byte) error {
	*l = Lifetime{}
	switch string(b) {
	case "never":
		l.Never = true
		return nil
	case "":
		return nil
	}
	if err := l.After.UnmarshalText(b); err != nil {
		return err
	}
	if l.After == 0 {
		return bailey.Errorf(bailey.CodeUsage, "set a timeout of 0", "write never for none", "0 is not a length of time that a sandbox can live")
	}
	return nil
}

// IsZero says that nothing was said.
func (l Lifetime) IsZero() bool { return l == Lifetime{} }
