// Package hostview decides what of the host a sandbox at the process level
// sees: the system's programs and libraries, a named part of /etc, the
// toolchain folders that PATH leads to, the workspace, and an empty home.
// Whatever no rule names does not exist inside.
//
// [Compute] only reads: it looks at names, types, modes and links below a root
// prefix and at the caller's environment, and answers with data. Mounting is
// the driver's work. The package imports nothing of the project but the root
// package, and starts nothing.
//
// Two rules hold everywhere. The deny list in secrets.go wins over every rule
// that shows something. And what a rule shows is decided on resolved paths, so
// that a link cannot carry it to another place.
package hostview
