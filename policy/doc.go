// Package policy is the document that says what a session may do, and the one
// function that decides by it. It is pure: no input or output, no clock, no
// globals. The gate, `bailey policy check`, the dashboard and the tests all
// call [Decide], so that what a person is told is what happens.
//
// It imports nothing of the project.
package policy
