package way

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/gate/rootfiles"
)

// Options configure Ways. Home and Daemon are required, the functions are not;
// none of them may call Ways.
type Options struct {
	Home   string   // the data folder, absolute
	Daemon string   // path of baileyd
	Env    []string // of gate and vault; nil is this process's
	// Listeners gives duplicates of the sandbox's listeners when a new gate has to
	// serve them; Ways closes them. Both nil: the sandbox has none now.
	Listeners func(ctx context.Context, sandbox string) (tcp, udp *os.File, err error)
	// Saved is given the state of a way whenever it has changed, to be kept with
	// the sandbox's record for Opening.Saved: in the background, but before Update,
	// Revoke and Close return, which give its error. No value of a secret is in it. For
	// one sandbox it is called by one goroutine at a time.
	Saved func(sandbox string, state json.RawMessage) error
	// Pid gives the first process of a sandbox on the host, 0 if there is none, so
	// that a question can say which program asks.
	Pid func(sandbox string) int
	// Asked is told of each question that was put to `bailey approvals`.
	Asked func(q control.Question)
	// Denied is told each denial that differs from earlier ones of its sandbox. It
	// must not block.
	Denied func(sandbox string, d control.Denial)
	// Lost is told when gate or vault have died, with the last words; they are being
	// started again.
	Lost func(words string)
	// Broken is told of a way that could not be opened again, each time it fails: its
	// sandbox has none until it can. It is tried again with the next call for the
	// sandbox, and when the gate dies again.
	Broken func(sandbox string, err error)
}

// Opening says how to open a sandbox's way out.
type Opening struct {
	Sandbox string // its id
	// Lineage is what shares a certificate authority, which is kept sealed until
	// Forget; "" is the sandbox alone, whose authority is another one in each gate.
	Lineage string
	Session string
	Level   bailey.Isolation
	Policy  control.Policy
	// Names is the path of the name table's file, which is made if it is not there;
	// "" keeps none. A fork gets a copy by CopyNames.
	Names string
	// Saved is what Options.Saved was last told of this sandbox; nil for a new
	// one, and for a fork, which gets placeholders of its own.
	Saved json.RawMessage
	// Root is the root file system that the authority is installed into.
	Root rootfiles.Root
	// AskTimeout in Ask says how long a question waits; 0 is what the policy says,
	// and else nobody is asked.
	Ask control.Ask
}

// Opened is what the sandbox has to be given.
type Opened struct {
	Policy string // digest of the version in force
	// Env, NAME=VALUE, has placeholders, proxies and trust variables. It wins over an
	// image's, and loses to what the owner says, who may not set Placeholders.
	Env          []string
	Placeholders []string
	Files        []File          // belong into the root: see Places
	Saved        json.RawMessage // for Opening.Saved; Options.Saved is not told of it
	Descriptions []string        // for a model: what may be reached
	Notes        []string        // for a person
}

// File is a file of a sandbox's root.
type File struct {
	Path    string // inside, absolute, no links
	Mode    fs.FileMode
	Content []byte
}

// Ways are the ways out of all sandboxes. Methods may be called by any number of
// goroutines at once; while a dead gate is replaced they wait.
type Ways struct {
	options Options
	life    context.Context // ends with Shutdown
	end     context.CancelFunc
	once    sync.Once      // Shutdown
	over    chan struct{}  // closed when run has returned
	work    sync.WaitGroup // of reopening
	desk    desk
	saves   saves

	state
}
