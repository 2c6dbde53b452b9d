package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/audit/seal"
	"github.com/bailey-sandbox/bailey/internal/gate"
	"github.com/bailey-sandbox/bailey/internal/gate/ca"
	"github.com/bailey-sandbox/bailey/internal/gate/confine"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/gate/dial"
	"github.com/bailey-sandbox/bailey/internal/gate/inject"
	"github.com/bailey-sandbox/bailey/internal/secrets/vault"
)

const gateUsage = `Usage: baileyd gate --home DIR

Serves sandboxes' ways out. It is started by bailey, which speaks to it on
descriptor 3 (package control), and ends when that connection does. The values
of secrets come on descriptor 4 (package vault).

`

// Descriptors that a gate is started with.
const (
	conversation = 3 // the control socket
	values       = 4 // the pipe from the vault
)

func gateCommand(_ context.Context, args []string, _, stderr io.Writer) int {
	if len(args) != 2 || args[0] != "--home" || !filepath.IsAbs(args[1]) {
		fmt.Fprint(stderr, gateUsage)
		return bailey.ExitBailey
	}
	peer, err := control.NewPeer(os.NewFile(conversation, "control"))
	if err != nil {
		return fail(stderr, false, bailey.Errorf(bailey.CodeUsage, "serve as a gate", "let bailey start it", "there is no connection on descriptor 3: %w", err))
	}
	// A panic's text names addresses and sizes, not values; a dump of all
	// goroutines would be longer than anybody keeps.
	debug.SetTraceback("single")
	// What requests leave behind is small beside what a Go program takes anyway:
	// it is collected less often, as long as there is not much of it.
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(gcLimit)
	g := &gateway{home: args[1], peer: peer, feed: vault.Follow(os.NewFile(values, "values")), open: map[string]*opening{}, lineages: map[string]*lineage{}}
	go func() {
		<-peer.Done()
		// Whoever started it is gone. What does not end by itself ends now.
		time.Sleep(lastSecond)
		os.Exit(bailey.ExitBailey)
	}()
	err = peer.Serve(g)
	g.end()
	if err != nil {
		return fail(stderr, false, bailey.Errorf(bailey.CodeProtocol, "go on as a gate", "", "%w", err))
	}
	return 0
}

// How far the memory of a gate grows before it is collected: to so many percent
// more than what is in use (Go's own default is 100), unless it comes near the
// limit in bytes.
const (
	gcPercent = 400
	gcLimit   = 160 << 20
)

// quiet is how long nothing may have been opened or closed before what that has left
// in memory is given back: bundles of certificates, mostly.
const quiet = 5 * time.Second

// tidyLater does so. The caller holds the lock.
func (g *gateway) tidyLater() {
	if g.tidy == nil {
		g.tidy = time.AfterFunc(quiet, debug.FreeOSMemory)
	} else {
		g.tidy.Reset(quiet)
	}
}

// lastSecond is how long a gate whose starter is gone may take to end.
const lastSecond = time.Second

// gateway is a gate's process: control.Gate over package gate.
type gateway struct {
	home string
	peer *control.Peer
	feed *vault.Feed

	// What start makes for all sandboxes.
	once   sync.Once
	failed error  // it, or giving up rights, went wrong: there is no second try
	bundle []byte // the host's authorities, in PEM
	log    *audit.Log
	roots  func() *x509.CertPool
	server *gate.Server
	report confine.Report

	mu       sync.Mutex
	tidy     *time.Timer
	issuer   *inject.Issuer // once there are secrets
	open     map[string]*opening
	lineages map[string]*lineage
}

// Check implements control.Gate.
func (g *gateway) Check(_ context.Context, p control.Policy) (control.Checked, error) {
	c, err := combine(p)
	if err != nil {
		return control.Checked{}, err
	}
	return control.Checked{Policy: c.Digest(), Session: sessionOf(c)}, nil
}

// start gathers what all sandboxes share and gives up all other rights, before
// anything of a sandbox is read.
func (g *gateway) start() error {
	g.once.Do(func() { g.failed = g.begin() })
	return g.failed
}

func (g *gateway) begin() error {
	key, err := seal.OpenKey(filepath.Join(g.home, "keys"))
	if err != nil {
		return err
	}
	if g.log, err = audit.Open(filepath.Join(g.home, "audit"), audit.Options{Signer: key}); err != nil {
		return err
	}
	if g.roots, err = systemRoots(); err != nil {
		return bailey.Errorf(bailey.CodeSetupFailed, "read the system's certificate authorities", "install the package ca-certificates", "%w", err)
	}
	g.bundle, _ = ca.SystemRoots() // for a root that has none; that there is none is an error then
	_, _ = time.Now().Zone()       // reads the time zone
	options := gate.Options{Audit: g.log, Dialer: dial.New(dial.Options{}), Denied: g.denied, Asker: asker{g.peer}, Changed: g.changed}
	if g.server, err = gate.New(options); err != nil {
		return err
	}
	g.report, err = confine.Apply(confine.Config{Read: lookups(), Write: []string{filepath.Join(g.home, "audit")}, Descriptors: descriptors})
	if err == nil {
		os.Clearenv() // whoever takes this process over needs none of it
	}
	return err
}

// descriptors is how many open files a gate asks for: each stream takes two.
const descriptors = 1 << 16

// lookups are the places where names are looked up. They are replaced while a
// gate runs, when the machine changes its network, so that folders are named and
// not files.
func lookups() []string {
	list := []string{"/etc"}
	if real, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil && filepath.Dir(real) != "/etc" {
		list = append(list, filepath.Dir(real))
	}
	return list
}

// end ends everything. No request is being worked on any more.
func (g *gateway) end() {
	if g.server != nil {
		g.server.Close()
	}
	for _, w := range g.open {
		w.close()
	}
	g.feed.Held().Wipe()
	if g.log != nil {
		g.log.Close()
	}
}
