package engine

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/engine/ledger"
	"github.com/bailey-sandbox/bailey/internal/engine/quota"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/layers"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// Clock is the time, so that tests order events instead of waiting for them.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine when d has passed; stop keeps it from
	// being called.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// Options configure an Engine.
type Options struct {
	Home   string         // the data folder; "" is this user's usual place
	Keeper *keeper.Client // nil: sandboxes end with this process
	Init   string         // path of bailey-init
	Daemon string         // path of baileyd, which is gate, vault and image tool too
	Clock  Clock          // nil: the real one
	Log    *slog.Logger   // nil: none
	// Quota bounds what an owner may have; with "" all owners together. nil: no
	// bounds. After a change of its answers QuotasChanged is called.
	Quota func(owner string) api.Quota
	// LowWater is how much room, in bytes, the data folder's disk must have for a
	// sandbox to be made; 0 is 256 MiB.
	LowWater int64
	// Reserve is how many sandboxes' namespaces are kept ready; it makes Create
	// quicker for root, and does nothing for an ordinary user.
	Reserve int
	// PortURL gives the address of a port that is reachable from outside by HTTP, "" if
	// nobody listens there. nil: nobody does.
	PortURL func(sandbox string, port int) string
	// PortTCP is where ports are reachable by TCP; the zero value is nowhere.
	PortTCP PortTCP
	// Warm are sandboxes that are kept ready, beside those that templates ask for.
	Warm []Warm
	// Trace, when given, is told each step before it is taken. It is for the fault
	// suite.
	Trace func(step string)
}

// Engine keeps sandboxes. Its methods may be called by any number of goroutines at
// once.
type Engine struct {
	opt    Options
	home   string // the data folder's real path
	folder *folder.Folder
	host   *run.Host
	driver driver.Levels
	linux  *linux.Driver  // of the levels on this host's kernel
	keeper *keeper.Client // nil: none
	db     *state.DB
	ledger *ledger.Ledger // what is done, in the audit log
	layers *layers.Store
	clock  Clock
	log    *slog.Logger

	lock    *os.File // of the data folder: one engine at a time
	started time.Time
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	tasks   sync.WaitGroup // all goroutines of the engine

	mu       sync.Mutex
	closed   bool
	boxes    map[string]*box // by id: all that have not ended
	going    map[string]bool // folders that are being removed
	removals chan struct{}   // has one element for each that is, at most removeAtOnce

	hooks    hooks
	gateway  gateway
	hostRoot hostRoot
	probes   probes

	images  images
	volumes volumes
	snaps   snaps
	pools   pools

	alarms  alarms         // when something is to happen to sandboxes by itself
	dues    sync.WaitGroup // those that attend to an alarm that rang
	traffic traffic

	ports    ports
	sessions sessions
	execs    execs
	events   bell        // rings when something has happened
	book     *quota.Book // who has what, and who waits
}

// Caller is on whose behalf something is done. The server has authenticated it.
type Caller struct {
	Name  string // key:NAME or uid:N; owns what it creates
	Admin bool   // may act on everybody's
	Local bool   // came over the unix socket: may name folders of the host
}

// may says whether the caller may see and act on what owner has.
func (c Caller) may(owner string) bool { return c.Admin || c.Name == owner }

// trace is called before a step.
func (e *Engine) trace(step string) {
	if e.opt.Trace != nil {
		e.opt.Trace(step)
	}
}

// spawn runs f in a goroutine that Close waits for. ctx ends with Close.
func (e *Engine) spawn(f func(ctx context.Context)) {
	e.tasks.Go(func() { f(e.ctx) })
}
