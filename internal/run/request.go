package run

import (
	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// Request is what somebody wants run.
type Request struct {
	Command []string
	Dir     string // the workspace; "" is the caller's working folder
	Workdir string // inside; "" is Dir's place inside

	Level       bailey.Isolation // what was chosen, never auto
	LevelReason string           // why, for the record
	Rootfs      *rootfs.Root     // for container

	UID, GID int      // inside; -1 chooses: the workspace's owner for process, root for container
	SetEnv   []string // NAME passes a variable on, NAME=VALUE sets it
	Mounts   []hostview.Mount
	// DenyRead and DenyWrite are paths of the host, with all below, that the
	// sandbox does not see, or cannot write, wherever it would.
	DenyRead, DenyWrite []string
	Home                string // a persistent home's name, "" for one that is thrown away

	Limits bailey.Limits
	Nested bool // programs inside may make sandboxes of their own

	// Gate is the sandbox's way out, started for it alone; nil is no network. Do,
	// or the Sandbox's Close, ends it.
	Gate *Gate

	Writable    bool     // write straight through to the host
	Named       []string // files that execute on the host and may be written all the same
	ForceCopy   bool
	IUnderstand bool

	// Ahead is for Open: the sandbox is made before anybody asks for it. It has
	// no name in the data folder and must not be used until Take.
	Ahead bool

	// Streams are the person's. With Capture set, output goes there and the
	// command reads nothing unless Stdin is set.
	Streams terminal.Streams
	Capture *Capture
}

// Host is what a Request runs on.
type Host struct {
	Folder *folder.Folder
	Driver driver.Driver
	Env    []string // the caller's environment
	Home   string   // the caller's home folder
	User   string   // the caller's name
	// Running, when given, is called in the background as soon as a command runs:
	// for work that nobody waits for.
	Running func()
	// Trace, when given, is called before each step.
	Trace func(step string)

	later later
	audit logbook
}

func (h *Host) trace(step string) {
	if h.Trace != nil {
		h.Trace(step)
	}
}

// Outcome is how a Request ended.
type Outcome struct {
	Run    *folder.Run // locked; the caller closes it
	End    bailey.End
	Notes  []hostview.Note
	Result terminal.Result
	// Unchanged: the command has left nothing in the layers of its workspace, so
	// there are no changes to look for. False says nothing.
	Unchanged bool
	// Egress is what the way out was used for; nil without a Gate.
	Egress *Egress
	// Failed is what went wrong after the command had ended, nil almost always:
	// its record could not be written, or files that execute on the host could
	// not be taken back from it.
	Failed error
	// Leftover says what could not be given back when the sandbox was over, nil
	// almost always. The command ran all the same.
	Leftover error
}
