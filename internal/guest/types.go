package guest

import (
	"os"
	"syscall"
	"time"

	bailey "github.com/bailey-sandbox/bailey"
)

// User is who a command or a file operation acts as, in the sandbox's own ids.
type User struct {
	UID, GID uint32
	Groups   []uint32 // supplementary groups, at most MaxGroups; none when empty
}

// Rlimit is one resource limit of a command, as setrlimit(2) takes it.
type Rlimit struct {
	Resource   uint32 // such as unix.RLIMIT_NOFILE
	Soft, Hard uint64
}

// Window is the size of a terminal, in character cells and in pixels.
type Window struct {
	Rows, Cols     uint16
	XPixel, YPixel uint16
}

// ExecSpec says what to run. Everything is explicit: a command inherits
// neither environment nor folder from bailey-init.
type ExecSpec struct {
	// ID names the execution for as long as the sandbox lives; the caller
	// chooses it, 1 to MaxID bytes. The same ID again attaches to the
	// execution that has it and never starts a second process.
	ID   string
	Argv []string // at least one; a name without a slash is looked up in PATH of Env
	Env  []string // the whole environment, KEY=VALUE; without PATH the usual folders are searched
	Dir  string   // absolute, inside the sandbox; "/" when empty

	User    *User    // nil: as bailey-init itself
	Rlimits []Rlimit // at most one per resource
	Umask   *uint32  // nil: 022

	// Stdin asks for a standard input that the caller feeds through
	// Process.Stdin. Without it, it is /dev/null: a command that reads meets
	// its end at once.
	Stdin bool

	// Terminal asks for a terminal of this size, opened inside the sandbox, in
	// place of pipes. Stdout then carries all output, and Stdin is implied.
	Terminal *Window

	// Files, over a Socket only, are descriptors that become the command's
	// 0, 1 and 2; the caller keeps the other ends, and Process.Stdin, Stdout
	// and Stderr are nil. A nil element is /dev/null. The caller still owns
	// and closes these files.
	Files *[3]*os.File
	// ControllingTerminal, with Files, makes Files[0], the slave side of a
	// terminal, the command's controlling terminal.
	ControllingTerminal bool

	// Timeout ends the command and all it started; 0 is none. Grace, if not
	// 0, is how long SIGTERM has before SIGKILL.
	Timeout, Grace time.Duration

	// ManualAck keeps Output.Read from acknowledging: the caller calls
	// Output.Ack once the bytes are safe. Without descriptors, bailey-init
	// stops reading the command's output at MaxUnacked bytes not acknowledged.
	ManualAck bool
}

// State is what an execution is doing.
type State uint8

// The states an execution can be in.
const (
	StateRunning State = 1 + iota
	StateStopped       // by a signal such as SIGTSTP; it can go on
	StateEnded
)

// String gives the state as JSON shows it.
func (s State) String() string {
	switch s {
	case StateRunning:
		return "running"
	case StateStopped:
		return "stopped"
	case StateEnded:
		return "ended"
	}
	return "unknown"
}

// Usage is what a command used, with its children that it waited for.
type Usage struct {
	User, System time.Duration
	MaxRSS       int64 // bytes, of the largest process
}

// ExecEnd is how an execution's main process ended.
type ExecEnd struct {
	ExitCode   int            // the exit status when Signal is 0
	Signal     syscall.Signal // the signal that ended it, or 0
	CoreDumped bool
	TimedOut   bool // ExecSpec.Timeout ended it
	Usage      Usage
	Elapsed    time.Duration // from start to end
	// Output is where the output of the main process ends at the latest: bytes
	// of stdout and stderr at or after these offsets come from processes that
	// it left behind. -1 where descriptors were passed by the caller and
	// nobody counted, and for a terminal, whose output ends with its stream; of
	// one whose bytes go over the protocol Output[0] is known since version 3.
	Output [2]int64
}

// End gives the end in the words that all of Bailey uses.
func (e ExecEnd) End() bailey.End {
	switch {
	case e.TimedOut:
		return bailey.End{Reason: bailey.EndTimeout, ExitCode: bailey.ExitTimeout}
	case e.Signal != 0:
		return bailey.End{Reason: bailey.EndSignal, ExitCode: 128 + int(e.Signal), Signal: SignalName(e.Signal)}
	default:
		return bailey.End{Reason: bailey.EndExit, ExitCode: e.ExitCode}
	}
}

// ExecStatus is one execution as bailey-init sees it.
type ExecStatus struct {
	ID       string
	State    State
	Pid      int      // inside the sandbox
	ExitCode *int     // nil until it has ended; 128 + signal when a signal ended it
	End      *ExecEnd // nil until it has ended
	// Left counts the processes that belong to the execution and still live,
	// the main process included.
	Left int
}

// ProcessInfo is one process inside the sandbox.
type ProcessInfo struct {
	Pid, Parent, Group, Session int
	State                       byte // as in /proc/PID/stat: R, S, D, T, Z …
	UID                         uint32
	Exec                        string // the execution that it belongs to, or ""
	Command                     string // its name, at most 64 bytes; chosen by the process itself
}

// NotStarted is the cause of the error that Exec gives when the sandbox could
// not start the command.
type NotStarted struct {
	Step  string        // what failed: "execve", "chdir", "setrlimit" …
	Errno syscall.Errno // why
}

// Error implements error.
func (e *NotStarted) Error() string { return e.Step + ": " + e.Errno.Error() }

// Unwrap gives the errno, so that errors.Is(err, fs.ErrNotExist) works.
func (e *NotStarted) Unwrap() error { return e.Errno }

// Scope says which processes of an execution a signal goes to.
type Scope uint8

// The scopes of a signal.
const (
	ScopeGroup   Scope = iota // the process group of the main process
	ScopeProcess              // the main process alone
	ScopeAll                  // every process that belongs to the execution, daemons included
)

// EventKind says what happened to an execution.
type EventKind uint8

// The kinds of Event.
const (
	EventStopped EventKind = 1 + iota
	EventContinued
	EventEnded
)

// Event is one thing that happened to an execution. Stops and continuations
// may be dropped when the owner does not read them; Status has the truth.
type Event struct {
	Kind   EventKind
	Signal syscall.Signal // what stopped it
}

// What bailey-init says when it is started to dial a port (bailey-init dial PORT): the first
// thing on its standard error once it is connected, and its exit code when nobody listens.
const (
	DialConnected = "+"
	DialRefused   = 3
)
