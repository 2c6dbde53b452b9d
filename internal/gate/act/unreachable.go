package act

import "errors"

// Unreachable is a Dialer's error for a destination that may be reached and
// could not be.
type Unreachable struct {
	// Code is what Outcome.Error has: name_unresolved, connect_refused,
	// connect_timeout, unreachable or canceled.
	Code string
	// Why is fit for the sandbox: it names nothing but the destination.
	Why string
	Err error // for the host's eyes
}

func (e *Unreachable) Error() string { return e.Why }

// Unwrap gives the cause.
func (e *Unreachable) Unwrap() error { return e.Err }

// FailureOf gives the code of an error of Dial: that of an Unreachable, or
// "unreachable".
func FailureOf(err error) string {
	var u *Unreachable
	if errors.As(err, &u) {
		return u.Code
	}
	return "unreachable"
}
