package terminal

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Options are what a Relay asks of its caller. The functions are called from a
// goroutine of the Relay, one at a time; they must not call the Relay, and
// should return soon. All are optional.
type Options struct {
	// OutputLimit bounds the bytes of standard output and error together; 0
	// is no bound. At the limit copying stops and OnLimit is called once. The
	// last byte that is shown is the last within the limit.
	OutputLimit int64
	OnLimit     func()

	// OnSignal gets SIGTERM, SIGHUP, SIGINT and SIGQUIT that are sent to this
	// process. The caller is to end the command, and then to call Finish.
	// Without it the Relay restores the terminal and lets the signal take its
	// default action.
	OnSignal func(os.Signal)

	// OnStop is called when the person stops a job that has no
	// pseudo-terminal (^Z reaches this process as SIGTSTP): the caller stops
	// what is inside. This process stops when the function returns. Without
	// it SIGTSTP has its default action.
	OnStop func()

	// OnContinue is called when the job goes on: the caller sends SIGCONT to
	// what is inside.
	OnContinue func()
}

// Result says what a Relay did.
type Result struct {
	Bytes        int64 // of output that came from inside, both streams
	LimitReached bool  // and there was more to come
	ReaderGone   bool  // whoever read the output on the person's side has closed it
	HungUp       bool  // the person's terminal has gone
}

// Relay copies between the person's streams and a command's. Start makes one;
// Finish must be called on every path, by a deferred call at best, since it is
// what gives the terminal back.
type Relay struct {
	person Streams
	inside Inside
	opts   Options
	term   *Terminal // nil without a pseudo-terminal

	stop *flag // stop copying
	cut  *flag // and do not even wait for the person's side to take what was read

	// gate is held for reading around every use of the person's terminal, and
	// for writing while the terminal is not ours.
	gate    sync.RWMutex
	filters []*Filter
	screen  *Filter // the filter behind the pseudo-terminal

	// Questions, see Ask: turn is held by the one that is asked, ending ends with
	// the relay, asked says that keys were taken from copyKeys.
	turn          sync.Mutex
	asking, asked atomic.Bool
	ending        context.Context
	end           context.CancelFunc

	signals chan os.Signal
	resumed chan struct{} // SIGCONT while a stop is under way
	halting atomic.Bool

	outputs  sync.WaitGroup
	ended    chan struct{} // closed when all outputs have ended
	inputEnd chan struct{}
	done     chan struct{} // closed to end the handling of signals
	sigEnd   chan struct{}
	limited  sync.Once

	budget budget
	gone   atomic.Bool
	hungUp atomic.Bool
	once   sync.Once
	result Result
}

// Start begins to copy. With a pseudo-terminal it sets its size and takes the
// person's terminal into raw mode; in the background that stops this process
// until it comes to the foreground, see Terminal.Raw.
func Start(person Streams, inside Inside, opts Options) (*Relay, error) {
	r := &Relay{
		person: person, inside: inside, opts: opts,
		signals:  make(chan os.Signal, 16),
		resumed:  make(chan struct{}, 1),
		ended:    make(chan struct{}),
		inputEnd: make(chan struct{}),
		done:     make(chan struct{}),
		sigEnd:   make(chan struct{}),
	}
	r.ending, r.end = context.WithCancel(context.Background())
	r.budget.limit = opts.OutputLimit
	if err := r.prepare(); err != nil {
		r.closeInside()
		return nil, err
	}
	r.listen()
	if r.term != nil {
		if err := r.term.Raw(); err != nil {
			signal.Stop(r.signals)
			r.stop.close()
			r.cut.close()
			r.closeInside()
			return nil, err
		}
		_ = SetSize(r.inside.Pty, r.term.Size())
	}
	r.launch()
	return r, nil
}

func (r *Relay) prepare() error {
	const what = "connect the command with its input and output"
	if (r.inside.Pty == nil) == (r.inside.Out == nil) {
		return bailey.Errorf(bailey.CodeInternal, what, "", "there is neither a terminal nor a pipe, or both")
	}
	if r.inside.Pty != nil {
		t, err := Open(r.person.In, r.person.Out)
		if err != nil {
			return err
		}
		r.term = t
	}
	// These ends are ours alone, so that their flags are ours to set.
	for _, f := range []*os.File{r.inside.Pty, r.inside.In, r.inside.Out, r.inside.Err} {
		if f == nil {
			continue
		}
		if err := unix.SetNonblock(descriptor(f), true); err != nil {
			return bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
		}
	}
	var err error
	if r.stop, err = newFlag(); err != nil {
		return bailey.Errorf(bailey.CodeSetupFailed, what, "raise the limit of open files (ulimit -n)", "%w", err)
	}
	if r.cut, err = newFlag(); err != nil {
		r.stop.close()
		return bailey.Errorf(bailey.CodeSetupFailed, what, "raise the limit of open files (ulimit -n)", "%w", err)
	}
	return nil
}

func (r *Relay) launch() {
	go r.guarded(r.handleSignals)
	if r.inside.Pty != nil {
		r.output(r.inside.Pty, r.person.Out)
		r.screen = r.filters[0]
		go r.guarded(r.copyKeys)
	} else {
		r.output(r.inside.Out, r.person.Out)
		go r.guarded(r.copyInput)
	}
	if r.inside.Err != nil {
		r.output(r.inside.Err, r.person.Err)
	}
	go func() {
		r.outputs.Wait()
		close(r.ended)
	}()
}

// output starts to copy one stream to the person, filtered where the person
// reads it on a terminal.
func (r *Relay) output(from, to *os.File) {
	var f *Filter
	if Is(to) {
		f = NewFilter(descriptorWriter{descriptor(to), descriptor(r.cut.read)})
		r.filters = append(r.filters, f)
	}
	r.outputs.Add(1)
	go r.guarded(func() {
		defer r.outputs.Done()
		r.copyOutput(from, to, f)
	})
}

// guarded gives the terminal back before a panic ends the process: deferred
// calls of other goroutines do not run then.
func (r *Relay) guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			if r.term != nil {
				r.term.restoreNow()
			}
			panic(p)
		}
	}()
	f()
}

// Ended is closed when the command's output has come to its end, or cannot be
// passed on any more.
func (r *Relay) Ended() <-chan struct{} { return r.ended }

// Finish ends the Relay once the command has ended. It waits up to drain for
// the rest of the output (a process that the command left behind may hold the
// other end for ever; what was read is delivered all the same), stops copying,
// switches off what the command left on, catches answers of the terminal that
// are still under way, and restores the terminal. It closes Inside. Later calls
// give the same result.
func (r *Relay) Finish(drain time.Duration) Result {
	r.once.Do(func() {
		r.end()
		timer := time.NewTimer(drain)
		select {
		case <-r.ended:
		case <-timer.C:
		}
		timer.Stop()
		r.stop.raise()
		<-r.ended
		// A blocked read of the person's input, where another reader took
		// what was there, must not hold the end. The goroutine then stays
		// until that read returns, and touches nothing afterwards.
		timer.Reset(100 * time.Millisecond)
		r.turn.Lock() // a question leaves the terminal first, and none comes after it
		defer r.turn.Unlock()
		clean := true
		select {
		case <-r.inputEnd:
		case <-timer.C:
			clean = false
		}
		timer.Stop()
		signal.Stop(r.signals)
		close(r.done)
		<-r.sigEnd
		r.leave(true)
		r.closeInside()
		r.cut.close()
		if clean {
			r.stop.close()
		}
		r.result = Result{
			Bytes:        r.budget.used(),
			LimitReached: r.budget.reached(),
			ReaderGone:   r.gone.Load(),
			HungUp:       r.hungUp.Load(),
		}
	})
	return r.result
}

// Abandon makes Finish give up output that the person's side does not take, as
// with a pager that pauses, or a terminal that was stopped by ^S. It is for a
// second signal from a person who has lost patience. It may be called at any
// time, from any goroutine.
func (r *Relay) Abandon() {
	r.end()
	r.stop.raise()
	r.cut.raise()
}

// leave hands the terminal back. At the end it is for good, otherwise until
// reenter.
func (r *Relay) leave(end bool) {
	for _, f := range r.filters {
		if end {
			_ = f.Close()
		} else {
			_ = f.Leave()
		}
	}
	if r.term == nil {
		return
	}
	asked := r.screen != nil && r.screen.Asked() && !r.hungUp.Load() && r.term.Foreground()
	if asked {
		r.term.settle()
	}
	_ = r.term.Restore(asked)
}

func (r *Relay) closeInside() {
	for _, f := range []*os.File{r.inside.Pty, r.inside.In, r.inside.Out, r.inside.Err} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// listen installs the signal handlers that this kind of Relay needs.
func (r *Relay) listen() {
	set := []os.Signal{syscall.SIGCONT}
	if r.term != nil {
		set = append(set, syscall.SIGWINCH)
	}
	if r.term != nil || r.opts.OnSignal != nil {
		for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
			if !signal.Ignored(s) { // nohup stays nohup
				set = append(set, s)
			}
		}
	}
	if r.opts.OnStop != nil && r.term == nil && !signal.Ignored(syscall.SIGTSTP) {
		set = append(set, syscall.SIGTSTP)
	}
	signal.Notify(r.signals, set...)
}
