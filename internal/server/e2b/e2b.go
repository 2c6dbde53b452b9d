package e2b

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// Engine is what the front needs of the engine; engine.Engine has its methods' words.
type Engine interface {
	Create(ctx context.Context, who engine.Caller, spec api.SandboxSpec) (api.Sandbox, error)
	Sandbox(ctx context.Context, who engine.Caller, ref string) (api.Sandbox, error)
	Sandboxes(ctx context.Context, who engine.Caller, q api.SandboxQuery) (list []api.Sandbox, next string, err error)
	Delete(ctx context.Context, who engine.Caller, ref string) error
	Pause(ctx context.Context, who engine.Caller, ref string, req api.PauseRequest) (api.Receipt, error)
	Resume(ctx context.Context, who engine.Caller, ref string) (api.Sandbox, error)
	Extend(ctx context.Context, who engine.Caller, ref string, req api.ExtendRequest) (api.Sandbox, error)
	Stats(ctx context.Context, who engine.Caller, ref string) (api.Stats, error)
	UpdatePolicy(ctx context.Context, who engine.Caller, ref string, spec api.SandboxSpec) (api.Sandbox, error)
	Snapshot(ctx context.Context, who engine.Caller, ref string, spec api.SnapshotSpec) (api.Snapshot, error)
	SnapshotOf(ctx context.Context, who engine.Caller, ref string) (api.Snapshot, error)
	Snapshots(ctx context.Context, who engine.Caller, sandbox string, checkpoints bool) ([]api.Snapshot, error)
	DeleteSnapshot(ctx context.Context, who engine.Caller, ref string) error
	Fork(ctx context.Context, who engine.Caller, ref string, req api.ForkRequest) ([]api.Sandbox, error)
	StartExec(ctx context.Context, who engine.Caller, ref string, spec api.ExecSpec) (api.Exec, error)
	Exec(ctx context.Context, who engine.Caller, ref, id string) (api.Exec, error)
	Execs(ctx context.Context, who engine.Caller, ref string) ([]api.Exec, error)
	WaitExec(ctx context.Context, who engine.Caller, ref, id string) (api.Exec, error)
	Output(ctx context.Context, who engine.Caller, ref, id string, from map[api.Stream]int64, follow bool, each func(api.OutputEvent) error) error
	WriteStdin(ctx context.Context, who engine.Caller, ref, id string, p []byte, eof bool) error
	SignalExec(ctx context.Context, who engine.Caller, ref, id, signal string) error
	ResizeExec(ctx context.Context, who engine.Caller, ref, id string, w api.Window) error
	ReadFile(ctx context.Context, who engine.Caller, ref, path string, offset, length int64) (io.ReadCloser, api.FileInfo, error)
	WriteFile(ctx context.Context, who engine.Caller, ref, path string, mode uint32, r io.Reader) (api.Written, error)
	StatFile(ctx context.Context, who engine.Caller, ref, path string) (api.FileInfo, error)
	ListFiles(ctx context.Context, who engine.Caller, ref, path string, depth int, each func(api.FileInfo) error) error
	Mkdir(ctx context.Context, who engine.Caller, ref, path string, mode uint32) error
	RemoveFile(ctx context.Context, who engine.Caller, ref, path string, recursive bool) error
	MoveFile(ctx context.Context, who engine.Caller, ref, from, to string) error
	Expose(ctx context.Context, who engine.Caller, ref string, req api.PortRequest) (api.Port, error)
	DialPort(ctx context.Context, ref string, port int) (net.Conn, error)
	WatchFiles(ctx context.Context, who engine.Caller, ref, path string, ready func(), each func(api.WatchEvent) error) error
}

// Options configure a Server.
type Options struct {
	Engine Engine
	Keys   *access.Keys
	Log    *slog.Logger // nil: none
	// Secret is what access tokens of sandboxes are derived from.
	Secret []byte
	// Domain is below which sandboxes are, PORT-ID.DOMAIN; "" is by headers only.
	// Reached, which may be nil, gives it with the port as clients have to say it.
	Domain  string
	Reached func() string
	// Ports answers requests to exposed ports at PORT-ID.DOMAIN; nil: none are reached.
	Ports http.Handler
	// Templates gives names of Bailey's templates for those that clients ask for. base
	// is Bailey's default unless it is in here.
	Templates map[string]string
	// Allow is what sandboxes of this front may reach, as --allow names it; none is no
	// network. A request can narrow it.
	Allow  []string
	Level  bailey.Isolation // of sandboxes that do not start from a snapshot; auto chooses
	Upload int64            // the most that a body may have, in bytes; 0 is no bound
}

// Server is the front.
type Server struct {
	opt      Options
	engine   Engine
	log      *slog.Logger
	control  *http.ServeMux
	closing  context.Context
	close    context.CancelFunc
	people   people
	watchers watchers
	samples  samples
	tasks    sync.WaitGroup
}

// New makes a front.
func New(opt Options) *Server {
	s := &Server{opt: opt, engine: opt.Engine, log: opt.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.opt.Domain = strings.ToLower(strings.Trim(opt.Domain, "."))
	s.closing, s.close = context.WithCancel(context.Background())
	s.control = s.controlRoutes()
	return s
}

// Close breaks all streams, so that their clients come back to the next daemon, and
// ends what polls; it returns when that has ended.
func (s *Server) Close() {
	s.close()
	s.tasks.Wait()
}

// nobody is on whose behalf the front looks for the sandbox that a token is of.
var nobody = engine.Caller{Name: "server", Admin: true}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A stream may say nothing for long, and an upload take long.
	rc := http.NewResponseController(w)
	rc.SetWriteDeadline(time.Time{})
	rc.SetReadDeadline(time.Time{})
	to, f := route(r, s.opt.Domain)
	switch {
	case f != nil:
		f.write(w)
	case to.sandbox != "":
		s.inside(w, r, to)
	case r.URL.Path == "/files" && r.URL.Query().Get("signature") != "":
		s.signed(w, r)
	case envdPath(r.URL.Path):
		fail(http.StatusBadRequest, "missing header: E2b-Sandbox-Id and E2b-Sandbox-Port say which sandbox this is for").write(w)
	default:
		s.control.ServeHTTP(w, r)
	}
}

// envdPath says that a path is one inside a sandbox.
func envdPath(p string) bool {
	return strings.HasPrefix(p, "/process.Process/") || strings.HasPrefix(p, "/filesystem.Filesystem/") || p == "/files" || p == "/execute"
}
