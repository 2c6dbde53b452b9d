// Package work does real work in `bailey run`, at every level and as every kind
// of user: what a developer or agent does on the host passes inside, unchanged.
//
// It has tests only, against the real program, most of them beside a control
// run of the same thing on the host.
package work
