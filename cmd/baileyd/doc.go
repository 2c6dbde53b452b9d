// Command baileyd is the program beside bailey that does what bailey must not
// link, so that bailey starts fast. In this version it prepares root file
// systems:
//
//	baileyd image prepare [--json] --store DIR [SOURCE]
//
// prints the description of a prepared root (package rootfs) as one line of
// JSON, or in words without --json. On failure it prints the error to stderr,
// with --json as one line with code, what, why and fix, and exits with 125.
package main
