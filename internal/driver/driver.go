package driver

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Driver builds sandboxes on this host.
type Driver interface {
	// Probe tries what the level needs and says what works. It changes nothing.
	Probe(ctx context.Context, level bailey.Isolation) Capabilities
	// Create builds a sandbox and starts its first process. When it fails
	// nothing of the sandbox is left but what the caller put into Spec.Dir.
	Create(ctx context.Context, spec Spec) (Instance, error)
}

// Capabilities says what a level can do on this host.
type Capabilities struct {
	Available bool   `json:"available"`
	Why       string `json:"why,omitempty"` // what is missing, when not available
	Fix       string `json:"fix,omitempty"` // what to do about it
	// MultiUser: ids other than the caller's exist inside, so that programs can
	// change users and packages can be installed.
	MultiUser bool `json:"multi_user"`
	// Overlay: copy-on-write without a copy.
	Overlay bool `json:"overlay"`
	// Limits that can be enforced by the host. A limit outside is
	// limit_unavailable when asked for.
	Limits []string `json:"limits"`
	// Landlock is the ABI version of the second wall, 0 if there is none.
	Landlock int `json:"landlock"`
}

// Spec is all that a driver needs to know to build a sandbox.
type Spec struct {
	ID       string
	Level    bailey.Isolation
	Hostname string // "" means ID
	Root     Root
	User     User
	Workdir  string   // inside; it must exist there
	Env      []string // NAME=VALUE, all of it
	// Limits were asked for: each is in force or Create fails with
	// limit_unavailable. Defaults hold where Limits has none and the host can
	// enforce them.
	Limits, Defaults bailey.Limits
	// Disks are folders of the host that the sandbox writes to, for the IO limit.
	Disks []string
	// Mount, when given, is a detached file system that the driver shows the
	// sandbox's builder at MountAt, a folder of the host, and nobody else: paths
	// of the Root below MountAt lie on it.
	Mount   *os.File
	MountAt string
	// NestedSandboxes lets programs inside make user namespaces of their own,
	// for tools that bring a sandbox. It widens what of the kernel they reach.
	NestedSandboxes bool
	// Held, when given, is closed when the sandbox is put to use. Until then only
	// its first process runs, and nothing has to be watched.
	Held  <-chan struct{}
	Entry Entry
}

// User is who the sandbox's command is.
type User struct {
	UID, GID int // inside
	// HostUID and HostGID own the workspace and all that the sandbox leaves
	// behind. A driver that maps ids maps UID to them; one that cannot runs as
	// the caller.
	HostUID, HostGID int
}

// Entry is what the sandbox runs.
type Entry struct {
	// Command, when given, is the one command of a sandbox that ends with it.
	Command []string
	// Stdio are the command's descriptors; a nil one is /dev/null. The driver
	// does not close them.
	Stdio [3]*os.File
	// Terminal gives the command a terminal of its own in place of Stdio; only
	// a Stdio[2] that is not nil stays, for a standard error that leads elsewhere.
	Terminal *WindowSize
	// Agent, when Command is empty, is the path of the bailey-init program that
	// stays and is spoken to through Instance.Agent.
	Agent string
}

// WindowSize is a terminal's size in cells.
type WindowSize struct{ Rows, Cols uint16 }

// Instance is one sandbox.
type Instance interface {
	// Terminal is the owner's side of the command's terminal, or nil. The
	// caller closes it.
	Terminal() *os.File
	// Agent is the owner's end of a stream to bailey-init, or nil.
	Agent() *os.File
	// Signal sends a signal to the command's process group.
	Signal(sig syscall.Signal) error
	// Stopped delivers each time the command stops because of job control.
	// Nobody has to listen.
	Stopped() <-chan syscall.Signal
	// Pid is the first process's id on the host.
	Pid() int
	// Pause stops every process, Resume lets them go on. Memory is kept.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Stats(ctx context.Context) (Stats, error)
	// Done is closed when the sandbox has ended; End then says how.
	Done() <-chan struct{}
	End() bailey.End
	// Kill ends the sandbox and makes End report reason.
	Kill(reason bailey.Reason)
	// Destroy ends the sandbox if it lives and releases all that the driver
	// made for it. It works from every state, any number of times.
	Destroy(ctx context.Context) error
}

// Stats is what a sandbox uses now. What the host does not count is -1.
type Stats struct {
	Memory     int64         `json:"memory"`      // bytes
	MemoryPeak int64         `json:"memory_peak"` // bytes
	Pids       int64         `json:"pids"`
	CPU        time.Duration `json:"cpu"` // processor time, in nanoseconds
}
