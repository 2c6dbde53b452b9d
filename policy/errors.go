package policy

import "fmt"

// Error is what is wrong with a document.
type Error struct {
	Line int    // in the text, from 1; 0 when no line is to blame
	At   string // the field: "egress.rules[2].hosts"
	Why  string
	Fix  string
}

func (e *Error) Error() string {
	s := ""
	if e.Line > 0 {
		s = fmt.Sprintf("line %d: ", e.Line)
	}
	if e.At != "" {
		s += e.At + ": "
	}
	s += e.Why
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}
