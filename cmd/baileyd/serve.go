package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/server"
	"github.com/bailey-sandbox/bailey/internal/server/access"
	"github.com/bailey-sandbox/bailey/internal/server/telemetry"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

const serveUsage = `Usage: bailey serve [flags]

Keeps sandboxes that stay, and answers on the socket bailey.sock of the data
folder, which appears when it is ready. On TCP it listens only when asked to, and
lets in only who has an API key.

SIGTERM ends it: requests under way end, sandboxes are stopped to disk and go on at
their next use. SIGHUP starts it anew from the program on disk, and the sandboxes
run on meanwhile.

`

type serveFlags struct {
	home, config, listen, tlsCert, tlsKey, domain, portsListen, portsDomain, e2bListen, e2bDomain string
	tlsOwn, install, auto                                                                         bool
}

func (o *serveFlags) set(f *pflag.FlagSet) {
	f.StringVar(&o.home, "home", "", "the data folder (default $BAILEY_HOME, or this user's usual place)")
	f.StringVar(&o.config, "config", "", "configuration file (default config.yaml in the data folder, if it is there)")
	f.StringVar(&o.listen, "listen", "", "listen on this HOST:PORT too; other than loopback needs TLS")
	f.StringVar(&o.tlsCert, "tls-cert", "", "certificate file for --listen, PEM")
	f.StringVar(&o.tlsKey, "tls-key", "", "the key file of --tls-cert")
	f.BoolVar(&o.tlsOwn, "tls-own", false, "certificate by an authority of Bailey's own: tls/ca.pem in the data folder")
	f.StringVar(&o.domain, "domain", "", "the daemon's name; its certificate comes by ACME unless another is given")
	f.StringVar(&o.portsListen, "ports-listen", "", "requests to exposed ports come to this HOST:PORT (default that of --listen)")
	f.StringVar(&o.portsDomain, "ports-domain", "", "the ports are at PORT-ID.DOMAIN (default --domain, on loopback localhost)")
	f.StringVar(&o.e2bListen, "e2b-listen", "", "answer clients written for E2B on this HOST:PORT; other than loopback needs TLS")
	f.StringVar(&o.e2bDomain, "e2b-domain", "", "for those clients sandboxes are at PORT-ID.DOMAIN too, not by headers only")
	f.BoolVar(&o.install, "install", false, "print a systemd unit and what to do with it, and end")
	f.BoolVar(&o.auto, "auto", false, "leave when no sandbox is left (for starts by the command line)")
}

func serveCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o serveFlags
	flags := pflag.NewFlagSet("bailey serve", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o.set(flags)
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, serveUsage+flags.FlagUsages())
		return 0
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("it takes no argument, and has %q", flags.Arg(0))
	}
	if err != nil {
		return fail(stderr, false, bailey.Errorf(bailey.CodeUsage, "understand the command line", "see bailey serve --help", "%w", err))
	}
	if o.home == "" {
		if o.home, err = folder.DefaultPath(); err != nil {
			return fail(stderr, false, err)
		}
	}
	if !filepath.IsAbs(o.home) {
		return fail(stderr, false, bailey.Errorf(bailey.CodeUsage, "serve", "give --home an absolute path", "%q is a relative path", o.home))
	}
	config, err := o.read()
	if err != nil {
		return fail(stderr, false, err)
	}
	if o.install {
		err = install(stdout, o, args)
	} else {
		err = serve(ctx, o, config, stderr)
	}
	if err != nil {
		return fail(stderr, false, err)
	}
	return 0
}

// read gives the configuration: the file's, and over it the flags'.
func (o serveFlags) read() (server.Config, error) {
	name, mayMiss := o.config, false
	if name == "" {
		name, mayMiss = filepath.Join(o.home, "config.yaml"), true
	}
	c, err := server.ReadConfig(name, mayMiss)
	if err != nil {
		return c, err
	}
	for _, f := range []struct {
		flag string
		to   *string
	}{{o.listen, &c.Listen}, {o.tlsCert, &c.TLS.Cert}, {o.tlsKey, &c.TLS.Key}, {o.domain, &c.Domain}, {o.portsListen, &c.Ports.Listen}, {o.portsDomain, &c.Ports.Domain}, {o.e2bListen, &c.E2B.Listen}, {o.e2bDomain, &c.E2B.Domain}} {
		if f.flag != "" {
			*f.to = f.flag
		}
	}
	c.TLS.Own = c.TLS.Own || o.tlsOwn
	return c, c.Check()
}

// reserve is how many sandboxes' namespaces are made ahead: as many creates at once
// do not wait for them.
const reserve = 4

// warmOf are the sandboxes that the configuration wants to be kept ready.
func warmOf(c server.Config) (list []engine.Warm) {
	for _, w := range c.Warm {
		list = append(list, engine.Warm{Template: w.Template, Level: w.Level, Count: w.Count})
	}
	return list
}

// serve is the daemon. The errors that it gives are why it could not start, or
// why it ended before it was told to.
func serve(ctx context.Context, o serveFlags, config server.Config, stderr io.Writer) (err error) {
	held, err := keeper.Inherited() // first: what is started later must not have it
	if err != nil {
		return err
	}
	var gone <-chan struct{}
	if held != nil {
		gone = held.Done()
	}
	leaving := newLeaving(ctx, gone)
	defer leaving.stop()
	log := config.Logger(stderr)
	profiled, err := profile()
	if err != nil {
		return err
	}
	defer profiled()
	if held == nil {
		log.Warn("no keeper has started this daemon: its sandboxes end with it, and only their files stay", "fix", "start it with bailey serve, or as bailey-keeper --home DIR -- baileyd serve")
	}
	stopTraces, tracing, err := telemetry.Traces(ctx, buildVersion())
	if err != nil {
		return err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if terr := stopTraces(last); terr != nil {
			log.Warn("the last traces were not sent", "error", terr)
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return bailey.Errorf(bailey.CodeInternal, "find this program", "", "%w", err)
	}
	// The keys lie in the state database, and the engine asks them for quotas from
	// its first sandbox on.
	f, err := folder.OpenAt(o.home)
	if err == nil {
		if merr := os.MkdirAll(f.Path(), 0o700); merr != nil {
			err = bailey.Errorf(bailey.CodeStorage, "make the data folder", "give --home another folder", "%w", merr)
		}
	}
	if err != nil {
		return err
	}
	db, err := state.Open(ctx, f.Path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	all, each := config.Quotas()
	var e *engine.Engine
	keys := access.NewKeys(db, access.KeyOptions{Rate: config.Rate, All: all, Each: each, Changed: func() { e.QuotasChanged() }}) // by requests, which come later
	tcp, err := config.PortTCP()
	if err != nil {
		return err
	}
	var portAddress server.PortAddress
	began := time.Now()
	e, err = engine.Open(leaving.ctx, engine.Options{
		Home: f.Path(), Keeper: held, Init: filepath.Join(filepath.Dir(self), "bailey-init"), Daemon: self, Log: log, Quota: keys.Quota, Reserve: reserve, Warm: warmOf(config),
		PortURL: portAddress.URL, PortTCP: tcp,
	})
	if err != nil {
		return err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = errors.Join(err, e.Close(last))
	}()
	log.Info("the engine is open", "home", f.Path(), "took", time.Since(began), "keeper", held != nil, "traces", tracing)
	s, err := server.New(server.Options{
		Home: f.Path(), Engine: e, DB: db, Keys: keys, Config: config, Version: buildVersion(), Log: log,
		Ports: e, PortAddress: &portAddress, Auto: o.auto, Stays: leaving.upgrade,
	})
	if err != nil {
		return err
	}
	if err := s.Run(leaving.ctx); err != nil {
		return err
	}
	switch {
	case leaving.lost():
		return bailey.Errorf(bailey.CodeSandboxLost, "go on", "start it again: what was acknowledged is kept", "the keeper is gone, and with it what keeps sandboxes alive")
	case !leaving.upgrade():
		stopAll(e, config, log)
	}
	return nil
}
