package bailey

import "fmt"

// Isolation says how strong the boundary around a sandbox is. Levels are
// ordered: a greater value is a stronger boundary, so they compare with <.
type Isolation int

// The isolation levels, weakest first. IsolationAuto is a request, never an
// answer: a sandbox that exists has one of the others.
const (
	IsolationAuto        Isolation = iota // let Bailey choose; it prints what it chose and why
	IsolationInterpreter                  // a shell and Python inside Bailey's own process
	IsolationProcess                      // the host's tools, seen through an allow list, in namespaces
	IsolationContainer                    // a root file system of its own, in namespaces
	IsolationGVisor                       // a kernel of its own, in user space
	IsolationMicroVM                      // a kernel of its own, in a virtual machine
	IsolationMachine                      // another machine
)

var isolationNames = [...]string{"auto", "interpreter", "process", "container", "gvisor", "microvm", "machine"}

// String gives the level's name as flags and JSON use it.
func (i Isolation) String() string {
	if i < 0 || int(i) >= len(isolationNames) {
		return fmt.Sprintf("isolation(%d)", int(i))
	}
	return isolationNames[i]
}

// OwnRoot says whether a sandbox of the level has a root file system of its own,
// made from an image or a template, in place of a view of the host's files.
func (i Isolation) OwnRoot() bool { return i >= IsolationContainer }

// ParseIsolation is the inverse of String. It accepts exactly the names that
// String gives.
func ParseIsolation(name string) (Isolation, error) {
	for i, n := range isolationNames {
		if n == name {
			return Isolation(i), nil
		}
	}
	return 0, Errorf(CodeUsage, "choose an isolation level", "one of auto, interpreter, process, container, gvisor, microvm, machine",
		"there is no level %q", name)
}

// MarshalText implements encoding.TextMarshaler.
func (i Isolation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *Isolation) UnmarshalText(b []byte) error {
	v, err := ParseIsolation(string(b))
	if err == nil {
		*i = v
	}
	return err
}
