package driver

import (
	"context"
	"net/netip"
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
	// Pause says how Instance.Pause stops a sandbox: PauseFreezer or PauseSignals.
	Pause string `json:"pause,omitempty"`
	// Egress says how a sandbox's connections reach the gate: "transparent",
	// whatever a program does to make them, or "" if they cannot. EgressWhy says
	// what is missing, of all of it or of a part, and EgressFix what to do.
	Egress    string `json:"egress"`
	EgressWhy string `json:"egress_why,omitempty"`
	EgressFix string `json:"egress_fix,omitempty"`
	// Emulated: the sandbox's processor is imitated by software. It is as strong a
	// boundary, and many times slower: nobody gets it who has not named it.
	Emulated bool `json:"emulated,omitempty"`
	// Lacks names what a sandbox can be asked to have and this level cannot give
	// it: Needs. A spec that asks for it is not_available there.
	Lacks []Need `json:"lacks,omitempty"`
	// Memory: its sandboxes are Suspenders, and the Driver is a Restorer. It is the
	// level's, whether or not this host has that.
	Memory bool `json:"memory,omitempty"`
}

// Need is something that a sandbox can be asked to have and not every level gives.
type Need string

// The needs.
const (
	NeedWorkspace Need = "workspace" // a folder of the host, copy-on-write
	NeedMounts    Need = "mounts"    // folders of the host as they are
	NeedVolumes   Need = "volumes"
	NeedAttach    Need = "attach" // mounts that are added while it runs
	NeedNested    Need = "nested" // namespaces of its own, for tools that bring a sandbox
	NeedNetwork   Need = "network"
)

// The values of Capabilities.Pause. What is stopped by signals can see afterwards
// that it was, and one of its own processes that is not stopped as well could let
// it go on: none is left running.
const (
	PauseFreezer = "freezer"
	PauseSignals = "signals"
)

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
	// Own is a folder of the host in the sandbox's own, for what its driver keeps as
	// long as the Instance lives. The driver makes it and removes it; one that is
	// there already is left from a crash, and nobody needs it.
	Own string
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
	// LateMounts prepares the sandbox for folders of the host that are shown
	// writable later (Staying.Attach): its programs may not set what holds on the
	// host as well, capabilities and set-user-id bits of files.
	LateMounts bool
	// Held, when given, is closed when the sandbox is put to use. Until then only
	// its first process runs, and nothing has to be watched.
	Held  <-chan struct{}
	Entry Entry
	// Outlet gives the sandbox a way to the gate: see Instance.Outlet. Without
	// it there is no network but its own loopback.
	Outlet bool
	// Cell, when given, makes the sandbox one in which a second one with a kernel
	// of its own is built: its wall is the inner one, and this one stands around it.
	Cell *Cell
}

// Cell says what a sandbox needs whose programs build another one in it. Its first
// process is root inside, whoever Spec.User is, and keeps the rights over its own
// user namespace that this takes: to mount, to make namespaces, to watch processes.
type Cell struct {
	// Args are the arguments of Entry.Agent.
	Args []string
	// Link gives the cell a network card, LinkName, in a network namespace of its
	// own, whose other end is at the listeners of the Outlet, and nothing else.
	Link bool
}

// Outlet is a sandbox's only way out: listeners that lie in its network
// namespace and are served from outside. Whoever takes it closes it.
type Outlet struct {
	// TCP is a listening socket at which every connection of the sandbox ends,
	// whatever its destination, but those to its own loopback. The original
	// destination is asked for with SO_ORIGINAL_DST.
	TCP *os.File
	// UDP is a socket that gets every datagram to port 53 of any address; an
	// answer goes back as from there.
	UDP *os.File
}

// EgressTransparent is the value of Capabilities.Egress where all connections
// of a sandbox reach the gate, whether or not a program knows of it.
const EgressTransparent = "transparent"

// GateAddr4 and GateAddr6 are the gate's own addresses inside: the name server,
// and the HTTP and SOCKS5 proxy at port GateProxyPort. Names get the others of
// their ranges, of which none is public.
var (
	GateAddr4 = netip.MustParseAddr("198.18.0.1")
	GateAddr6 = netip.MustParseAddr("fdba:11e4::1")
)

// GateProxyPort is the port of the proxy at the gate's addresses.
const GateProxyPort = 3128

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
	// Outlet gives the listeners of the sandbox's way out, once; nil when it
	// has none or they were taken.
	Outlet() *Outlet
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
	// MemoryLimit is the one in force, in bytes, 0 without one. OOMKills are the
	// processes killed for it so far, -1 where that is not counted; OOMVictim is the
	// last one's name, where it is known.
	MemoryLimit int64  `json:"memory_limit"`
	OOMKills    int64  `json:"oom_kills"`
	OOMVictim   string `json:"oom_victim,omitempty"`
}
