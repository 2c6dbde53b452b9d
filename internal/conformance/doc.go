// Package conformance holds the suites that try the real program as a whole:
//
//	escape   what an attacker inside tries, each beside a control run in which it works
//	egress   what tries to get out past the gate, and real clients that go through it
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
//	T47 T48 T49 T50 T51 T52 T53 T55 T57 T59 T60 T61 T62 T63 T64 T65   egress, cases.go
package conformance
