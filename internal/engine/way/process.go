package way

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/gate/starter"
)

// state is what changes: the process in force, and the ways.
type state struct {
	mu      sync.Mutex
	process *process      // nil while there is none
	ready   chan struct{} // closed when process is set
	ways    map[string]*way
}

// process is a gate, its vault, and what tells that either has died.
type process struct {
	*starter.Process
	lost chan struct{}
	once sync.Once
}

// Alive says whether both are there: one without the other is about to be ended,
// and what failed in it is done again in the next.
func (p *process) Alive() bool { return p.Process.Alive() && !p.VaultEnded() }

func (p *process) fall() { p.once.Do(func() { close(p.lost) }) }

// Pauses between a gate that fell soon after its start and the next one; what
// lived longer than steady is followed at once.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 10 * time.Second
	steady     = 10 * time.Second
)

// reopenAtOnce is how many ways are opened again at a time.
const reopenAtOnce = 8

// Start starts gate and vault, and starts them again whenever they die, until
// Shutdown.
func Start(o Options) (*Ways, error) {
	if o.Env == nil {
		o.Env = os.Environ()
	}
	w := &Ways{options: o, over: make(chan struct{}), state: state{ready: make(chan struct{}), ways: map[string]*way{}}}
	w.life, w.end = context.WithCancel(context.Background())
	w.desk.home = o.Home
	p, err := w.launch()
	if err != nil {
		return nil, err
	}
	w.saves.start(w)
	go w.run(p)
	return w, nil
}

func (w *Ways) launch() (*process, error) {
	p := &process{lost: make(chan struct{})}
	var err error
	p.Process, err = starter.Start(starter.Options{
		Daemon: w.options.Daemon, Home: w.options.Home, Env: w.options.Env, VaultLost: p.fall,
		Events: control.Events{Ask: func(ctx context.Context, q control.Question) control.Answer { return w.ask(ctx, p, q) }, Denied: w.options.Denied, Saved: w.saves.take},
	})
	return p, err
}

// run keeps a gate alive.
func (w *Ways) run(p *process) {
	defer close(w.over)
	defer w.work.Wait()
	pause := firstPause
	for {
		began := time.Now()
		if p != nil {
			w.put(p)
			w.work.Go(func() { w.reopen(p) })
			select {
			case <-p.Client.Done():
			case <-p.lost:
			case <-w.life.Done():
			}
			w.take()
			p.Close() // a gate without its vault, or a vault without its gate, ends too
			if w.life.Err() != nil {
				return
			}
			if w.options.Lost != nil {
				w.options.Lost(p.Words())
			}
		}
		if time.Since(began) > steady {
			pause = firstPause
		} else {
			select {
			case <-time.After(pause):
			case <-w.life.Done():
				return
			}
			pause = min(2*pause, lastPause)
		}
		var err error
		if p, err = w.launch(); err != nil {
			if p = nil; w.options.Lost != nil {
				w.options.Lost(err.Error())
			}
		}
	}
}

func (w *Ways) put(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process = p
	close(w.ready)
}

func (w *Ways) take() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process, w.ready = nil, make(chan struct{})
}

// live gives the gate, which is waited for.
func (w *Ways) live(ctx context.Context) (*process, error) {
	for {
		w.mu.Lock()
		p, ready := w.process, w.ready
		w.mu.Unlock()
		if w.life.Err() != nil {
			return nil, bailey.Errorf(bailey.CodeNotAvailable, "use the gate", "", "it has been shut down")
		}
		if p != nil && p.Alive() {
			return p, nil
		}
		if p != nil { // it is dead, and run has not yet seen it
			ready = make(chan struct{})
		}
		select {
		case <-ready:
		case <-time.After(10 * time.Millisecond):
		case <-w.life.Done():
		case <-ctx.Done():
			return nil, bailey.Errorf(bailey.CodeNotAvailable, "use the gate", "try again; the daemon's log says why it does not start", "it has died, and another one is not there yet: %w", context.Cause(ctx))
		}
	}
}

// reopen opens every way in a new gate.
func (w *Ways) reopen(p *process) {
	w.mu.Lock()
	all := make([]*way, 0, len(w.ways))
	for _, one := range w.ways {
		all = append(all, one)
	}
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b *way) int { return int(b.used.Load() - a.used.Load()) }) // who spoke last comes first
	slots := make(chan struct{}, reopenAtOnce)
	var work sync.WaitGroup
	for _, one := range all {
		select {
		case slots <- struct{}{}:
		case <-w.life.Done():
		}
		if w.life.Err() != nil || !p.Alive() {
			break
		}
		work.Go(func() {
			defer func() { <-slots }()
			if one.take(w.life) != nil {
				return
			}
			defer one.give()
			if p.Alive() { // else the next one's turn has come
				w.ensure(w.life, p, one) // it has told who wants to know
			}
		})
	}
	work.Wait()
}

// Pid is the gate's process id, 0 while there is none.
func (w *Ways) Pid() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil {
		return 0
	}
	return w.process.Pid()
}

// Shutdown ends gate and vault. Questions that are open stay answerable, for the
// next daemon. Sandboxes are left without a way out until then.
func (w *Ways) Shutdown() {
	w.once.Do(func() {
		w.end()
		<-w.over
		w.saves.stop()
		w.desk.close()
	})
}
