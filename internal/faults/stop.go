package faults

// Stop says where the sandbox's first process is to stop.
type Stop struct {
	// After is how many steps it takes before it stops; 0 is never. A number,
	// since names hold paths that are of one run only.
	After int
	// Gate is a descriptor: the process writes a byte there when it has got
	// there, and goes on when it can read one.
	Gate int
	// Steps, when given, is told the names of all its steps.
	Steps func(names []string)
}
