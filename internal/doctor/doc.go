// Package doctor finds out which isolation levels work on this host, why the
// others do not, and what exactly would change that.
//
// [Check] reads the kernel's settings below a root prefix and calls the probes
// it was given, which really try: a setting says what should happen, a trial
// what does. It changes nothing on the host; what a trial makes is gone when it
// returns. A [Report] can be shown as text, as JSON, or, redacted, in a bug
// report.
package doctor
