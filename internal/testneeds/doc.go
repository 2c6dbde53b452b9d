// Package testneeds skips tests that this machine or this user cannot run, with
// reasons that scripts/test reads and checks: a test that could have run and was
// skipped all the same fails the suite.
//
// A reason is one of
//
//	needs root: WHY
//	needs an ordinary user: WHY
//	needs tool NAME
//	needs host NAME: WHAT
//	part of TEST
//
// where the last is for tests that another test of the package calls, in a
// process of its own, and that must then have passed, or was skipped itself for
// another reason. NAME after "needs host" is a [Feature], each with a probe of its
// own. The probe and the test that uses the feature do not share code, so that a
// fault in the test cannot hide behind its own skip.
//
// Programs gives tests Bailey's own programs.
//
// Only tests and scripts/testrun import it.
package testneeds
