package engine

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/levels"
	"github.com/bailey-sandbox/bailey/internal/run"
)

// openLevels makes the drivers.
func (e *Engine) openLevels() {
	e.linux = linux.New(linux.Options{State: e.home, Part: sandboxesDir})
	e.driver = levels.Of(e.linux, filepath.Dir(e.opt.Init))
}

// probes are what was found out about levels. Each is tried when somebody first
// needs to know.
type probes struct {
	mu   sync.Mutex
	done map[bailey.Isolation]driver.Capabilities
}

// can says what a level can do on this host.
func (e *Engine) can(ctx context.Context, level bailey.Isolation) driver.Capabilities {
	e.probes.mu.Lock()
	defer e.probes.mu.Unlock()
	c, ok := e.probes.done[level]
	if ok {
		return c
	}
	if c = e.driver.Probe(ctx, level); ctx.Err() == nil {
		if e.probes.done == nil {
			e.probes.done = map[bailey.Isolation]driver.Capabilities{}
		}
		e.probes.done[level] = c
	}
	return c
}

// choose gives the isolation level and why: the one that is asked for, or the
// strongest that is not emulated and can do all of it.
func (e *Engine) choose(ctx context.Context, s api.SandboxSpec) (bailey.Isolation, string, error) {
	if s.Isolation != bailey.IsolationAuto {
		return run.Choose(run.Ask{Level: s.Isolation, Min: s.MinIsolation, Root: s.Template != "" || s.Image != "" || s.Snapshot != ""})
	}
	// The container level is offered untried: what this host lacks for it is said
	// best by the attempt, and so is a limit that it cannot hold to.
	container := run.Offer{Level: bailey.IsolationContainer, Can: driver.Capabilities{Available: true, Limits: limitsOf(s.Limits)}}
	offers := []run.Offer{container}
	for level := range e.driver {
		if level > bailey.IsolationContainer {
			offers = append(offers, run.Offer{Level: level, Can: e.can(ctx, level)})
		}
	}
	return run.Strongest(offers, run.Need{Min: s.MinIsolation, Things: needsOf(s), Limits: limitsOf(s.Limits)})
}

// needsOf says what a spec asks for that not every level has.
func needsOf(s api.SandboxSpec) (needs []driver.Need) {
	for _, n := range []struct {
		asked bool
		need  driver.Need
	}{
		{s.Workspace != "", driver.NeedWorkspace},
		{len(s.Mounts) > 0, driver.NeedMounts},
		{len(s.Volumes) > 0, driver.NeedVolumes},
		{len(s.Policy) > 0 || len(s.Allow) > 0 || len(s.Profiles) > 0, driver.NeedNetwork},
	} {
		if n.asked {
			needs = append(needs, n.need)
		}
	}
	return needs
}

// limitsOf names the limits that are asked for as drivers name them.
func limitsOf(l bailey.Limits) (names []string) {
	for _, x := range []struct {
		asked bool
		name  string
	}{{l.CPUs > 0, "cpus"}, {l.Memory > 0, "memory"}, {l.Pids > 0, "pids"}, {l.IO > 0, "io"}} {
		if x.asked {
			names = append(names, x.name)
		}
	}
	return names
}
