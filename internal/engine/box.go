package engine

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/store/disk"
)

// box is one sandbox in the engine. Of its three locks op comes first.
//
// op is held by whoever changes what state it is in, from the row that says so to
// the row that says it is done; it can be waited for with a context. Those who
// only use a sandbox that runs hold a use (see awake), and an act that must not
// meet any waits for them.
type box struct {
	e   *Engine
	id  string
	dir string // its folder

	op chan struct{} // holds one token while nobody has it

	writing sync.Mutex // held from a record to the next

	mu   sync.Mutex
	rec  *record // never nil, never changed: replaced
	gen  *generation
	uses int
	// filings are those uses that end when an act has waited for them long enough.
	filings map[*filing]struct{}
	free    chan struct{} // closed when uses gets to 0; nil while nobody waits
	shut    bool          // no new use is given: somebody waits for the last to go
	disk    *disk.Mount   // the file system of limited size, while it is open
	lock    *os.File      // the folder's lock
	way     *boxWay       // open; only touched with op held
	held    []*os.File    // locks of layers of the image's store
	// doomed is closed when somebody deletes the sandbox: what goes on with it is
	// given up.
	doomed chan struct{}
	doom   sync.Once

	ahead bool  // it was made ahead: its record is in no row
	warm  *warm // what it is to be made of, with op held; nil: it is made anew

	alive    alive
	admitted bool // room was set aside for it; with op held
}

// generation is one run of a sandbox: from the start of its first process to its
// end. All fields are set before anybody sees it and stay as they are.
type generation struct {
	box      *box
	n        int64 // record.Starts at its start
	instance driver.Instance
	env      []string // NAME=VALUE, of commands that say nothing else
	workdir  string
	user     *guest.User // nil: as bailey-init itself

	ctx    context.Context // ends when the generation has ended
	cancel context.CancelFunc

	outlet *driver.Outlet // the listeners of its way out; guarded by box.mu

	connect sync.Mutex
	client  *guest.Client // nil until it is spoken with

	// ending: whoever ended it knows, so that it was not lost.
	ending atomic.Bool
	// over is closed when the end is recorded and every hook has been told.
	over chan struct{}
}

func newBox(e *Engine, id string, r *record) *box {
	b := &box{e: e, id: id, dir: e.dirOf(id), op: make(chan struct{}, 1), rec: r, doomed: make(chan struct{})}
	b.op <- struct{}{}
	b.alive.life = r.Life.Clone()
	return b
}

// begin takes the right to change the sandbox's state; the caller calls done.
func (b *box) begin(ctx context.Context) error {
	select {
	case <-b.op:
		return nil
	default:
	}
	select {
	case <-b.op:
		return nil
	case <-ctx.Done():
		return bailey.Errorf(bailey.CodeBusy, "change the sandbox "+b.id, "try again", "something else is being done to it: %w", context.Cause(ctx))
	}
}

// done gives back what begin took.
func (b *box) done() {
	b.e.recount(b)
	b.op <- struct{}{}
}

// bound gives a context that ends, too, when the sandbox is to be deleted.
func (b *box) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-b.doomed:
			cancel(bailey.Errorf(bailey.CodeSandboxEnded, "go on with the sandbox "+b.id, "", "it is being deleted"))
		case <-stop:
		}
	}()
	return ctx, func() { close(stop); cancel(nil) }
}

// record gives what is known. It must not be changed.
func (b *box) record() *record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec
}

// generation gives the generation that runs, or nil.
func (b *box) generation() *generation {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gen
}

// The layout of a sandbox's folder:
//
//	sandboxes/ID/lock          held by the engine that has the sandbox
//	sandboxes/ID/roots/N/upper what was written at the place N (record.Roots)
//	sandboxes/ID/roots/N/work  overlayfs's own, made anew for each generation
//	sandboxes/ID/scratch/      empty folders that roots stand on, and generated files
//	sandboxes/ID/layers/       copies of workspaces that cannot be seen otherwise
//	sandboxes/ID/execs/        logs of execs
//	sandboxes/ID/names         the name table
//	sandboxes/ID/driver/       what the driver keeps while a generation lives
//	sandboxes/ID/disk.img      the file system of limited size, if there is one: it
//	                           then has roots, scratch and layers
const (
	sandboxesDir = "sandboxes"
	rootsDir     = "roots"
	execsDir     = "execs"
	namesFile    = "names"
	diskFile     = "disk.img"
	lockFile     = "lock"
)

// dirOf is the folder of a sandbox.
func (e *Engine) dirOf(id string) string { return filepath.Join(e.home, sandboxesDir, id) }

// base is where roots and what they stand on lie for this process: the sandbox's
// folder or its disk.
func (b *box) base() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.disk != nil {
		return b.disk.Path()
	}
	return b.dir
}

// rootDir is the folder of a writable place, which holds upper and work.
func (b *box) rootDir(n int) string {
	return filepath.Join(b.base(), rootsDir, strconv.Itoa(n))
}

// upper is the folder in which the writes to a place end.
func (b *box) upper(n int) string { return filepath.Join(b.rootDir(n), "upper") }

// driverDir is for what the driver keeps of a generation.
func (b *box) driverDir() string { return filepath.Join(b.dir, "driver") }

// execDir is where the logs of execs lie.
func (b *box) execDir() string { return filepath.Join(b.dir, execsDir) }

// speak gives the conversation with bailey-init, opening it if need be. Of a
// sandbox that is frozen nobody answers.
func (g *generation) speak(ctx context.Context) (*guest.Client, error) {
	g.connect.Lock()
	defer g.connect.Unlock()
	if g.client != nil {
		return g.client, nil
	}
	socket, err := guest.NewSocket(g.instance.Agent())
	if err == nil {
		g.client, err = guest.NewClient(ctx, socket, guest.ClientOptions{})
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeSandboxLost, "speak with the sandbox's first process", "", "%w", err)
	}
	return g.client, nil
}
