// Package conformance holds the suites that try the real program as a whole:
//
//	escape   what an attacker inside tries, each beside a control run in which it works
//	fault    kills at every step and at random moments, and what is taken away under Bailey
//	work     real work at every level, compared with the host
//	rig      what fault and work share: programs, users, yards, and counting what is left
//
// Situations that users of such systems have reported are tests of these names:
//
//	T19 T20 T24 T25 T27 T28 T30 T31 T32 T38 T43 T44 T45   work, reported_test.go
//	T40   fault: every aftermath compares the host's tree with what it was
//	T41   work, reported_test.go; internal/hostview, TestOverlaps
//	T42   internal/doctor
package conformance
