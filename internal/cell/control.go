package cell

import (
	"encoding/json"
	"errors"

	"github.com/bailey-sandbox/bailey"
)

// The control protocol: on a SOCK_SEQPACKET socket, one message each way, of which the
// second may carry a descriptor. Then the connection is closed.

// ControlVersion is the version of the protocol. A cell outlives its daemon, which may be newer: what is new
// goes into new fields and new acts, and a cell says that it does not know an act.
const ControlVersion = 1

// The acts of a request.
const (
	ActState = "state" // tells how the cell is
	ActDial  = "dial"  // connects to a port inside; the answer carries one end of a stream
	ActRun   = "run"   // runs a program of the cell, such as one that speaks to the inner program
)

// Request is what is asked of a cell.
type Request struct {
	Version int    `json:"version"`
	Act     string `json:"act"`
	// Port, of ActDial: 1 to 65535, of 127.0.0.1 and then ::1.
	Port int `json:"port,omitempty"`
	// Argv and Env, of ActRun: an absolute path first, and the whole environment. Its input is
	// empty.
	Argv []string `json:"argv,omitempty"`
	Env  []string `json:"env,omitempty"`
	// Within bounds the act, in milliseconds; 0 is 30 seconds.
	Within int64 `json:"within,omitempty"`
}

// Answer is what a cell says.
type Answer struct {
	Version int    `json:"version"`
	Failed  *Fault `json:"failed,omitempty"`
	State   *State `json:"state,omitempty"`
	Ran     *Ran   `json:"ran,omitempty"`
}

// State is how a cell is.
type State struct {
	Inner int   `json:"inner"` // the inner program's pid in the cell
	Since int64 `json:"since"` // when it was started, in seconds since 1970
	// Guest is the version of the protocol that bailey-init inside speaks.
	Guest int `json:"guest"`
	// Log is the end of what the inner program wrote to its standard error. What is in
	// it may come from inside.
	Log string `json:"log,omitempty"`
}

// Ran is how a program ended: its status as a shell tells it, and the first part of its
// output and error output together.
type Ran struct {
	Code   int    `json:"code"`
	Output string `json:"output,omitempty"`
}

// Fault is a failure. Refused says that nobody listens at the port.
type Fault struct {
	Code    bailey.Code `json:"code"`
	Why     string      `json:"why"`
	Refused bool        `json:"refused,omitempty"`
}

const (
	maxMessage = 64 << 10 // bytes of a request or an answer
	maxOutput  = 16 << 10 // bytes of Ran.Output
	maxText    = 2 << 10  // bytes of Fault.Why
	maxActs    = 256      // acts at once
)

var errControl = errors.New("a message of the cell's control that makes no sense")

func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err == nil && len(b) > maxMessage {
		err = bailey.Errorf(bailey.CodeUsage, "ask the cell", "say less", "the message is larger than 64 KiB")
	}
	return b, err
}

// ParseRequest reads a request. Fields that this version does not know are ignored: whoever sends them
// has to be content with that.
func ParseRequest(b []byte) (r Request, err error) {
	if err := json.Unmarshal(b, &r); err != nil || r.Version < 1 || r.Within < 0 || r.Within > 1<<40 {
		return Request{}, errControl
	}
	return r, nil
}

// ParseAnswer reads an answer.
func ParseAnswer(b []byte) (a Answer, err error) {
	if err := json.Unmarshal(b, &a); err != nil || a.Version < 1 {
		return Answer{}, errControl
	}
	return a, nil
}
