package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/server/access"
	"github.com/bailey-sandbox/bailey/internal/server/e2b"
	"github.com/bailey-sandbox/bailey/internal/server/ingress"
	"github.com/bailey-sandbox/bailey/internal/server/listen"
	"github.com/bailey-sandbox/bailey/internal/server/rest"
	"github.com/bailey-sandbox/bailey/internal/server/telemetry"
	"github.com/bailey-sandbox/bailey/internal/server/webhook"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// Options are what a Server serves.
type Options struct {
	Home    string // the data folder
	Engine  rest.Engine
	DB      *state.DB
	Keys    *access.Keys
	Config  Config
	Version string
	Log     *slog.Logger
	// Ports is where exposed ports are; nil: none are served.
	Ports ingress.Engine
	// PortAddress, which may be nil, is told where that is.
	PortAddress *PortAddress
	// Auto has Run return once no sandbox is left and nobody asks for Linger.
	Auto   bool
	Linger time.Duration // 0 is 10 seconds
	// Stays leaves the socket at the end of Run, because another daemon follows.
	Stays func() bool
	// Ready, which may be nil, is told where the daemon listens: the socket first,
	// then the address for TCP if there is one.
	Ready func(addresses ...string)
}

// Server is one daemon's.
type Server struct {
	opt      Options
	api      *rest.Server
	metrics  *telemetry.Metrics
	hooks    *webhook.Sender
	handler  http.Handler
	ports    *ingress.Handler // nil: none
	e2b      *e2b.Server      // nil: none
	e2bAt    atomic.Pointer[string]
	e2bPorts *ingress.Handler // nil: none
	busy     atomic.Int64     // handlers and connections that are active
	active   sync.Map         // those connections
	moved    chan struct{}    // has one element when something happened
}

// New puts a server together; nothing listens yet.
func New(opt Options) (*Server, error) {
	if err := opt.Config.Check(); err != nil {
		return nil, err
	}
	allow, err := opt.Config.allow()
	if err != nil {
		return nil, err
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Linger == 0 {
		opt.Linger = 10 * time.Second
	}
	s := &Server{opt: opt, moved: make(chan struct{}, 1)}
	s.metrics = telemetry.NewMetrics(opt.Version, opt.Engine)
	s.hooks = webhook.New(webhook.Options{DB: opt.DB, Source: opt.Engine, Allow: allow, Log: opt.Log})
	s.api = rest.New(rest.Options{
		Engine: s.metrics.Observe(opt.Engine), Keys: opt.Keys, Webhooks: s.hooks,
		Domain: opt.Config.Domain, Upload: opt.Config.MaxUpload, Log: opt.Log,
	})
	mux := http.NewServeMux()
	mux.Handle("/", s.api)
	mux.Handle("/mcp", s.mcpHandler())
	metrics := s.metrics.Handler()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if err := access.From(r.Context()).Needs(access.Read, "read the metrics"); err != nil {
			rest.WriteProblem(w, err)
			return
		}
		metrics.ServeHTTP(w, r)
	})
	guard := &access.Guard{Keys: opt.Keys, Hosts: s.hosts(), Origins: opt.Config.Origins, Next: mux,
		Refuse: func(w http.ResponseWriter, err error, limit int64, wait time.Duration) {
			var own *bailey.Error
			if wait > 0 && errors.As(err, &own) {
				err = &rest.LimitError{Err: own, Limit: limit, How: "ask for a key with a higher rate", After: wait}
			}
			rest.WriteProblem(w, err)
		}}
	var h http.Handler = guard
	h = telemetry.Traced(h, s.api.Pattern)
	h = s.metrics.Requests(h, s.api.Pattern)
	s.handler = s.counted(h)
	if domain := opt.Config.PortsDomain(); domain != "" && opt.Ports != nil {
		s.ports = ingress.New(ingress.Options{Engine: opt.Ports, Domain: domain, Log: opt.Log})
	}
	return s, s.newE2B()
}

// hosts are the names that the daemon is reached by over TCP.
func (s *Server) hosts() []string {
	list := append([]string{"localhost", "127.0.0.1", "::1"}, s.opt.Config.Hosts...)
	if host, _, err := net.SplitHostPort(s.opt.Config.Listen); err == nil && host != "" {
		list = append(list, host)
	}
	if s.opt.Config.Domain != "" {
		list = append(list, s.opt.Config.Domain)
	}
	return list
}

// counted notes that something goes on, for Auto.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.busy.Add(1)
		defer func() {
			s.busy.Add(-1)
			s.move()
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *Server) move() {
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// Run serves until ctx ends, or with Auto until nothing is left to do. Requests
// under way are given time to end; streams are broken, so that their clients come
// back to the next daemon.
func (s *Server) Run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	hooksEnded := make(chan error, 1)
	tasks.Go(func() { hooksEnded <- s.hooks.Run(background) })
	c := s.opt.Config
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			l.Close() // what is served is closed by its server before
		}
	}()
	local, err := listen.Unix(s.opt.Home)
	if err != nil {
		return err
	}
	listeners = append(listeners, local)
	servers := []*http.Server{s.httpServer(s.handler)}
	addresses := []string{local.Addr().String()}
	if c.Listen != "" {
		t := listen.TLS{Cert: c.TLS.Cert, Key: c.TLS.Key, Own: c.TLS.Own, Domain: c.Domain, Email: c.TLS.ACME.Email, Directory: c.TLS.ACME.Directory, Hosts: s.hosts()}
		if c.Domain != "" && (c.TLS.Cert != "" || c.TLS.Own) {
			t.Domain = ""
		}
		h := s.handler
		if c.Ports.Listen == "" && s.ports != nil {
			if t.Domain != "" || t.Own {
				t = s.withPorts(t)
			}
			h = byHost(s.ports, s.counted(s.ports), h)
		}
		l, err := s.listenTCP(background, c.Listen, t)
		if err != nil {
			return err
		}
		if c.Ports.Listen == "" && s.ports != nil {
			s.portsAt(l.Addr(), t)
		}
		listeners, servers = append(listeners, l), append(servers, s.httpServer(h))
		addresses = append(addresses, l.Addr().String())
	}
	if c.Ports.Listen != "" && s.ports != nil {
		l, err := s.listenPorts(background)
		if err != nil {
			return err
		}
		listeners, servers = append(listeners, l), append(servers, s.httpServer(s.counted(s.ports)))
		addresses = append(addresses, l.Addr().String())
	}
	if s.e2b != nil {
		l, err := s.listenE2B(background)
		if err != nil {
			return err
		}
		listeners, servers = append(listeners, l), append(servers, s.httpServer(s.counted(s.e2b)))
		addresses = append(addresses, l.Addr().String())
	}
	if c.Metrics != "" {
		l, err := net.Listen("tcp", c.Metrics)
		if err != nil {
			return bailey.Errorf(bailey.CodeUsage, "listen on "+c.Metrics, "choose another address", "%w", err)
		}
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", s.metrics.Handler())
		listeners, servers = append(listeners, l), append(servers, s.httpServer(mux))
	}
	failed := make(chan error, len(servers))
	for i, srv := range servers {
		tasks.Go(func() {
			if err := srv.Serve(listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	addresses[0] = s.opt.Home + "/" + listen.SocketName
	s.opt.Log.Info("serving", "addresses", addresses)
	if s.opt.Ready != nil {
		s.opt.Ready(addresses...)
	}
	left := make(chan struct{})
	if s.opt.Auto {
		tasks.Go(func() { s.untilUnused(background, left) })
	}
	select {
	case <-ctx.Done():
	case <-left:
		s.opt.Log.Info("the last sandbox has gone")
	case err = <-failed:
	case err = <-hooksEnded:
	}
	return errors.Join(err, s.shutdown(servers))
}

// shutdown ends the servers: no new requests, those under way get their time.
func (s *Server) shutdown(servers []*http.Server) error {
	if s.opt.Stays == nil || !s.opt.Stays() {
		// Taken away before the listener closes, so that nobody finds a socket behind
		// which nobody is.
		if err := listen.Remove(s.opt.Home); err != nil {
			s.opt.Log.Warn("the socket cannot be removed", "error", err)
		}
	}
	s.api.Close()
	if s.ports != nil {
		s.ports.Close()
	}
	if s.e2b != nil {
		if s.e2bPorts != nil {
			s.e2bPorts.Close()
		}
		s.e2b.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.Config.DrainTime())
	defer cancel()
	var all sync.WaitGroup
	for _, srv := range servers {
		all.Go(func() {
			if srv.Shutdown(ctx) != nil {
				srv.Close() // whoever is still there has had its time
			}
		})
	}
	all.Wait()
	return nil
}

func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       access.ConnContext,
		ConnState:         s.watch,
		ErrorLog:          slog.NewLogLogger(s.opt.Log.Handler(), slog.LevelDebug),
	}
}

func (s *Server) listenTCP(ctx context.Context, address string, t listen.TLS) (net.Listener, error) {
	conf, err := t.Config(ctx, s.opt.Home)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		fix := "choose another address"
		if errors.Is(err, os.ErrPermission) {
			fix = "choose a port from 1024 on, or give the daemon CAP_NET_BIND_SERVICE"
		}
		return nil, bailey.Errorf(bailey.CodeUsage, "listen on "+address, fix, "%w", err)
	}
	return secured(l, conf), nil
}
