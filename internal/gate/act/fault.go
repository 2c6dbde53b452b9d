package act

import (
	"os"
	"runtime/debug"
)

// Fault is why an act ended that brought out a fault of the gate's own.
var Fault = &Refused{Reason: "gate_fault", Why: "the gate has a fault, which this stream brought out"}

// Caught tells whether a goroutine that works for a sandbox is panicking. Each
// such goroutine defers a function that gives it what recover gives and then
// ends what it worked on, with Fault: one stream must not end the gate for all
// sandboxes. The place goes to standard error; the panic's own text does not,
// since it could hold what the stream sent.
func Caught(recovered any) bool {
	if recovered == nil {
		return false
	}
	os.Stderr.Write(debug.Stack())
	return true
}
