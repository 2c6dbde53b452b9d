// Package e2b runs programs that were written for E2B's SDK against a keeper and daemon
// of its own: testdata/cases.mjs, with both generations of the SDK from npm, by
// environment variables alone. Every case says what came of it.
package e2b
