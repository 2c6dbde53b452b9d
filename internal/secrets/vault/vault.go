package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/secrets"
)

// What a Vault does when.
const (
	// beat is how often the files are looked at while something is to be expected,
	// and where the kernel does not tell of changes; slowBeat where it does: it says
	// nothing of what another machine changes.
	beat     = 200 * time.Millisecond
	slowBeat = 10 * time.Second
	// patience is how long a changed secret may take to be read before the old
	// one is taken from the gate: a command can take half a minute.
	patience = 500 * time.Millisecond
	// again is the pause after a command that failed.
	again = 5 * time.Second
	// ahead is how long before it expires a command's value is asked for again.
	ahead = time.Minute
)

// Vault tells a gate the state of secrets. Its methods may be called by several
// goroutines.
type Vault struct {
	store *secrets.Store
	held  *secrets.Held // only for what it knows of changes
	ahead time.Duration
	again time.Duration

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	out   io.Writer
	names map[string]string // the error last told, "" for none

	news chan struct{} // closed, and made anew, by each change in the folder
	told bool          // the kernel tells of changes
}

// Open makes a Vault that writes to out. It ends with Close, or by itself when
// out takes nothing more; Done says so.
func Open(ctx context.Context, store *secrets.Store, out io.Writer) (*Vault, error) {
	v := &Vault{store: store, ahead: ahead, again: again, out: out, names: map[string]string{}, news: make(chan struct{})}
	v.ctx, v.cancel = context.WithCancel(ctx)
	var err error
	if v.held, err = store.Hold(v.ctx); err != nil {
		return nil, err
	}
	if w, err := watchFolder(store.Folder()); err == nil {
		v.told = true
		context.AfterFunc(v.ctx, w.close)
		v.work.Go(func() { v.follow(w) })
	}
	mark, err := store.Mark()
	if err == nil {
		v.tell(message{Mark: mark})
	}
	return v, err
}

// follow passes on that the folder has changed.
func (v *Vault) follow(w *watcher) {
	for {
		err := w.next()
		v.mu.Lock()
		close(v.news)
		v.news = make(chan struct{})
		v.told = err == nil // else it is looked at as often as where nobody tells
		v.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// look gives what the next change closes, and how long to wait for it at most.
func (v *Vault) look() (news <-chan struct{}, wait time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.told {
		return v.news, slowBeat
	}
	return v.news, beat
}

// Give tells a blob, for one Feed.Blob to take, or why there is none.
func (v *Vault) Give(kind, name string, value []byte, err error) {
	m := message{Sealed: kind, Name: name, Value: value}
	if err != nil {
		m.Error = asError(err)
	}
	v.send(m)
}

// Done is closed when there is nobody to tell anything.
func (v *Vault) Done() <-chan struct{} { return v.ctx.Done() }

// Close ends it, with the commands that run.
func (v *Vault) Close() {
	v.cancel()
	v.work.Wait()
}

// Watch tells the state of a secret from now on. One that is watched already is
// not watched twice.
func (v *Vault) Watch(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, there := v.names[name]; there || v.ctx.Err() != nil {
		return
	}
	v.names[name] = ""
	v.work.Go(func() { v.watch(name) })
}

type result struct {
	current *secrets.Current
	err     error
}

// errSlow is told while a changed secret is being read.
var errSlow = bailey.Errorf(bailey.CodeBusy, "use the secret", "wait for its command", "it has changed, and is being asked for")

func (v *Vault) watch(name string) {
	tick := time.NewTimer(beat)
	defer tick.Stop()
	done := make(chan result, 1)
	reading, first := false, true
	var since, next, renew time.Time // of a change that has not been told; when to read, at the earliest and in any case
	for {
		news, wait := v.look() // before the file: a change behind is seen
		now := time.Now()
		changed := first || v.held.Changed(name)
		switch {
		case !changed:
			since = time.Time{}
		case since.IsZero():
			since = now
		case !first && reading && now.Sub(since) > patience:
			v.fail(name, errSlow)
		}
		if !reading && now.After(next) && (changed || !renew.IsZero() && now.After(renew)) {
			reading = true
			go func() {
				c, err := v.held.Refresh(v.ctx, name)
				done <- result{c, err}
			}()
		}
		if reading || changed {
			wait = beat
		} else if left := time.Until(renew); !renew.IsZero() && left < wait {
			wait = max(left, beat)
		}
		tick.Reset(wait)
		select {
		case <-v.ctx.Done():
			if reading {
				<-done
			}
			return
		case <-tick.C:
		case <-news:
		case r := <-done:
			reading = false
			changed = v.held.Changed(name)
			switch {
			case r.err == nil && !changed:
				v.tell(stateOf(r.current))
				first, renew = false, time.Time{}
				if !r.current.Expires.IsZero() {
					renew = r.current.Expires.Add(-v.ahead)
				}
			case r.err == nil: // it has changed meanwhile
			default:
				if bailey.CodeOf(r.err) == bailey.CodeSetupFailed {
					next = time.Now().Add(v.again)
				}
				// A value that could not be asked for again is good until it expires.
				if first || changed {
					v.fail(name, r.err)
				}
				first = false
			}
			wipe(r.current)
		}
	}
}

func wipe(c *secrets.Current) {
	if c == nil {
		return
	}
	if c.Value != nil {
		c.Value.Wipe()
	}
	for _, o := range c.Old {
		o.Wipe()
	}
}

// fail says, once, why a secret must not be used.
func (v *Vault) fail(name string, err error) {
	if v.ctx.Err() != nil {
		return // that is why
	}
	own := asError(err)
	v.mu.Lock()
	same := v.names[name] == own.Error()
	v.names[name] = own.Error()
	v.mu.Unlock()
	if !same {
		v.send(message{Name: name, Error: own})
	}
}

func asError(err error) *bailey.Error {
	var own *bailey.Error
	if !errors.As(err, &own) {
		own = bailey.Errorf(bailey.CodeInternal, "use the secret", "", "%w", err)
	}
	return own
}

func (v *Vault) tell(m message) {
	if m.Name != "" {
		v.mu.Lock()
		v.names[m.Name] = ""
		v.mu.Unlock()
	}
	v.send(m)
}

func (v *Vault) send(m message) {
	var line bytes.Buffer
	err := json.NewEncoder(&line).Encode(m)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		_, err = v.out.Write(line.Bytes())
	}
	clear(line.Bytes())
	if err != nil {
		v.cancel()
	}
}
