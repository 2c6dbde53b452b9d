package vault

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/secrets"
)

// Feed is the gate's end of the pipe.
type Feed struct {
	held *secrets.Held

	mu     sync.Mutex
	news   chan struct{} // closed, and made anew, by each message
	mark   string
	states map[string]error // nil for one that may be used
	blobs  map[string][]blob
	lost   error // the pipe is over
}

// blob is one that has come and was not taken.
type blob struct {
	value []byte
	err   error
}

// maxUntaken is how many blobs of one name are kept, and maxNames of how many.
// Whoever asks for them takes them, but where it has failed meanwhile.
const (
	maxUntaken = 64
	maxNames   = 4096
)

// Follow reads what a Vault writes, until its end. Nothing need ever come.
func Follow(r io.Reader) *Feed {
	f := &Feed{held: secrets.NewHeld(), news: make(chan struct{}), states: map[string]error{}, blobs: map[string][]blob{}}
	f.held.Changed = func(name string) bool { return f.state(name) != nil }
	f.held.Refresh = func(_ context.Context, name string) (*secrets.Current, error) {
		if err := f.state(name); err != nil {
			return nil, err
		}
		// What it gave would be put in force, over what may have come meanwhile.
		return nil, bailey.Errorf(bailey.CodeNotAvailable, "use the secret", "see what its command says", "the value of %s has expired, and its command gives no other", name)
	}
	go f.read(json.NewDecoder(r))
	return f
}

// Held gives the secrets, as they are at each moment.
func (f *Feed) Held() *secrets.Held { return f.held }

// errLost is for everything after the vault's end.
var errLost = bailey.Errorf(bailey.CodeNotAvailable, "use the secret", "start the sandbox again", "the process that holds the secrets has ended")

func (f *Feed) state(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost != nil {
		return f.lost
	}
	err, known := f.states[name]
	if !known {
		return bailey.Errorf(bailey.CodeNotFound, "use the secret", "", "%s was not asked for", name)
	}
	return err
}

func (f *Feed) read(d *json.Decoder) {
	for {
		var m message
		if d.Decode(&m) != nil {
			f.mu.Lock()
			f.lost = errLost
			f.mu.Unlock()
			f.tell()
			return
		}
		f.take(m)
		f.tell()
	}
}

func (f *Feed) take(m message) {
	if m.Sealed != "" {
		f.keep(m)
		return
	}
	if m.Name != "" && m.Error == nil {
		f.held.Put(m.current())
	}
	f.mu.Lock()
	switch {
	case m.Name == "":
		f.mark = m.Mark
	case m.Error == nil:
		f.states[m.Name] = nil
	default:
		f.states[m.Name] = m.Error
	}
	f.mu.Unlock()
	if m.Name != "" && m.Error != nil {
		// What was in use is from now on only taken out of answers.
		f.held.Put(&secrets.Current{Name: m.Name})
	}
}

func (f *Feed) keep(m message) {
	b := blob{value: m.Value}
	if m.Error != nil {
		b.err = m.Error
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := m.Sealed + " " + m.Name
	if f.blobs[key] == nil && len(f.blobs) >= maxNames {
		for k, list := range f.blobs { // any: who asked for it asks again
			for _, old := range list {
				clear(old.value)
			}
			delete(f.blobs, k)
			break
		}
	}
	list := append(f.blobs[key], b)
	if len(list) > maxUntaken {
		clear(list[0].value)
		list = list[1:]
	}
	f.blobs[key] = list
}

// Blob waits for a blob that a Vault was told to Give, and takes it: each was given
// for one taker. Whoever has it wipes it.
func (f *Feed) Blob(ctx context.Context, kind, name string) ([]byte, error) {
	key := kind + " " + name
	for {
		f.mu.Lock()
		news, lost := f.news, f.lost
		if list := f.blobs[key]; len(list) > 0 {
			if f.blobs[key] = list[1:]; len(list) == 1 {
				delete(f.blobs, key)
			}
			f.mu.Unlock()
			return list[0].value, list[0].err
		}
		f.mu.Unlock()
		if lost != nil {
			return nil, lost
		}
		if err := waitFor(ctx, news); err != nil {
			return nil, err
		}
	}
}

func waitFor(ctx context.Context, news <-chan struct{}) error {
	select {
	case <-news:
		return nil
	case <-ctx.Done():
		err := context.Cause(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = bailey.Errorf(bailey.CodeSetupFailed, "get the secrets", "see whether their commands end", "nothing came in time")
		}
		return err
	}
}

func (f *Feed) tell() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.news)
	f.news = make(chan struct{})
}

// Wait waits until the mark and the state of each named secret have come, and
// gives the mark. A secret that must not be used is an error; a revoked one is
// not, and is refused when it is used.
func (f *Feed) Wait(ctx context.Context, names []string) (mark string, err error) {
	for {
		f.mu.Lock()
		news, waits := f.news, f.mark == ""
		err = f.lost
		for _, n := range names {
			state, known := f.states[n]
			waits = waits || !known
			if err == nil {
				err = state
			}
		}
		mark = f.mark
		f.mu.Unlock()
		if err != nil || !waits {
			return mark, err
		}
		if err := waitFor(ctx, news); err != nil {
			return "", err
		}
	}
}
