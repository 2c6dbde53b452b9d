package secrets

import (
	"bytes"
	"fmt"
	"log/slog"

	"github.com/bailey-sandbox/bailey"
)

// What a value may be.
const (
	// MinValue is the fewest bytes of a value. Answers are searched for values;
	// a shorter one would be found in texts that do not hold it.
	MinValue = 12
	// MaxValue is the most bytes of a value.
	MaxValue = 64 << 10
)

// Value is a secret in memory. It prints as [secret], however it is printed.
type Value struct{ b []byte }

// NewValue takes b over.
func NewValue(b []byte) *Value { return &Value{b} }

// Bytes gives the value itself. It must not be changed or kept.
func (v *Value) Bytes() []byte { return v.b }

// Wipe overwrites the value. Copies that the run time has made while it grew a
// stack or a string that somebody has made are out of reach.
func (v *Value) Wipe() {
	clear(v.b)
	v.b = nil
}

const hidden = "[secret]"

// Format keeps the value out of every format verb.
func (v *Value) Format(f fmt.State, _ rune) { fmt.Fprint(f, hidden) }

// MarshalText keeps it out of JSON and other encodings.
func (v *Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue keeps it out of structured logs.
func (v *Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// checkValue says what is wrong with a value, without saying the value.
func checkValue(name string, b []byte) error {
	const what = "keep the secret"
	switch {
	case len(b) < MinValue:
		return bailey.Errorf(bailey.CodeUsage, what, "use a longer one: its issuer can make one",
			"the value of %s has %d bytes; below %d, taking it out of answers would damage other text", name, len(b), MinValue)
	case len(b) > MaxValue:
		return bailey.Errorf(bailey.CodeUsage, what, "", "the value of %s has more than %d bytes", name, MaxValue)
	case bytes.ContainsAny(b, "\r\n\x00"):
		return bailey.Errorf(bailey.CodeUsage, what, "a key of several lines cannot be sent in a header; keep the token itself",
			"the value of %s has a line end or a NUL inside, which could forge a header", name)
	}
	return nil
}

// TrimFinalNewline takes the one line end off that echo and editors add.
func TrimFinalNewline(b []byte) []byte {
	if n, ok := bytes.CutSuffix(b, []byte("\n")); ok {
		return bytes.TrimSuffix(n, []byte("\r"))
	}
	return b
}
