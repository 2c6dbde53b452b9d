package api

import (
	"time"

	"github.com/bailey-sandbox/bailey"
)

// ExecSpec is a command to run.
type ExecSpec struct {
	// ID is chosen by the caller, or made. The same ID again gives the exec that
	// has it and starts nothing. 1 to 128 bytes of letters, digits, . _ : -
	ID   string   `json:"id,omitempty"`
	Args []string `json:"args"`
	// Shell runs Args[0] with sh -c.
	Shell   bool              `json:"shell,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"dir,omitempty"`
	User    string            `json:"user,omitempty"`
	Stdin   bool              `json:"stdin,omitempty"` // keep it open for input; else it is /dev/null
	Pty     *Window           `json:"pty,omitempty"`
	Timeout Duration          `json:"timeout,omitempty"` // 0: none
	Grace   Duration          `json:"grace,omitempty"`   // between SIGTERM and SIGKILL
	// Output bounds what is kept of each stream, in bytes; default 64 MiB, and
	// the oldest is dropped. Offsets go on counting.
	Output int64 `json:"output,omitempty"`
	// Generation, when not 0, is the one the caller has seen: another is the
	// error sandbox_restarted.
	Generation int64 `json:"generation,omitempty"`
	// Checkpoint makes a checkpoint before it.
	Checkpoint bool `json:"checkpoint,omitempty"`
}

// Window is a terminal's size in cells.
type Window struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// ExecState is where an exec stands.
type ExecState string

// The states of an exec.
const (
	ExecStarting ExecState = "starting" // recorded; whether it runs will be known
	ExecRunning  ExecState = "running"
	ExecEnded    ExecState = "ended"
)

// Exec is what is known about an exec. It is kept after its sandbox has gone.
type Exec struct {
	ID         string      `json:"id"`
	Sandbox    string      `json:"sandbox"`
	Generation int64       `json:"generation"`
	Args       []string    `json:"args"`
	Pty        bool        `json:"pty,omitempty"`
	State      ExecState   `json:"state"`
	Pid        int         `json:"pid,omitempty"`  // inside
	ExitCode   *int        `json:"exit_code"`      // nil until it has ended
	End        *bailey.End `json:"end,omitempty"`  // nil until it has ended
	Left       int         `json:"left,omitempty"` // processes that it started and that live
	Started    time.Time   `json:"started"`
	Ended      *time.Time  `json:"ended,omitempty"`
	Stdout     StreamInfo  `json:"stdout"`
	Stderr     StreamInfo  `json:"stderr"`
	Checkpoint string      `json:"checkpoint,omitempty"` // made before it
	Denials    []Denial    `json:"denials,omitempty"`
}

// Denial is one refused act: what, which rule, why, how to ask.
type Denial struct {
	What   string `json:"what"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"`
	Why    string `json:"why"`
	Ask    string `json:"how_to_ask,omitempty"`
	Count  int64  `json:"count,omitempty"`
}

// StreamInfo is what is kept of an output stream: bytes From to To.
type StreamInfo struct {
	From   int64 `json:"from"`
	To     int64 `json:"to"`
	Closed bool  `json:"closed"` // nothing more will come
}

// Stream names an output stream.
type Stream string

// The streams. A terminal's output is all stdout.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// OutputEvent is a piece of an exec's output, or its end. Data is base64 in
// JSON, so that every byte arrives.
type OutputEvent struct {
	Stream Stream `json:"stream,omitempty"`
	Offset int64  `json:"offset"` // of Data's first byte
	Data   []byte `json:"data,omitempty"`
	// Dropped: bytes from the offset that was asked for up to Offset are kept no more.
	Dropped int64         `json:"dropped,omitempty"`
	Exec    *Exec         `json:"exec,omitempty"`  // the last event: it has ended
	Error   *bailey.Error `json:"error,omitempty"` // the last event: following failed
}

// ExecResult is a command's whole outcome, for who does not want a stream.
type ExecResult struct {
	Exec
	Out       []byte `json:"stdout_data"` // base64 in JSON
	Err       []byte `json:"stderr_data"`
	Truncated bool   `json:"truncated,omitempty"`
}
