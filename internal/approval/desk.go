package approval

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// maxKept is how many answered questions stay, for whoever answers too late.
const maxKept = 64

// Desk is the asking end: a process's questions.
type Desk struct {
	dir   string
	watch *watcher

	mu     sync.Mutex
	open   map[string]*Pending
	kept   []*Pending // answered, oldest first
	closed bool
	done   chan struct{}
}

// Pending is a question that is open, or was.
type Pending struct {
	Question
	desk *Desk
	file *os.File // holds the lock

	once   sync.Once
	done   chan struct{}
	answer Answer
}

// Open makes the folder of the data folder home ready for questions.
func Open(home string) (*Desk, error) {
	const what = "ask a question"
	dir, err := folder(home)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	sweep(dir)
	w, err := watchFolder(dir)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "watch %s: %w", dir, err)
	}
	d := &Desk{dir: dir, watch: w, open: map[string]*Pending{}, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		for d.watch.next() == nil {
			d.look()
		}
	}()
	return d, nil
}

func folder(home string) (string, error) {
	abs, err := filepath.Abs(home)
	return filepath.Join(abs, "approvals"), err
}

// Put asks a question, whose ID, if it has none, and Asked it sets. A durable one
// takes the place of what the same sandbox asked for the same act before, when
// whoever asked it, this process or another, has gone without an answer; if one was
// given meanwhile it is the answer.
func (d *Desk) Put(q Question) (*Pending, error) {
	const what = "ask a question"
	if q.ID == "" {
		q.ID = NewID()
	}
	if !validID(q.ID) || q.Digest == "" {
		return nil, bailey.Errorf(bailey.CodeInternal, what, "", "it has no proper id, or no digest")
	}
	q.Asked = time.Now()
	text, err := json.Marshal(q)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeInternal, what, "", "%w", err)
	}
	p := &Pending{Question: q, desk: d, done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, bailey.Errorf(bailey.CodeInternal, what, "", "the sandbox has ended")
	}
	if q.Durable {
		if a, answered := d.inherit(q); answered {
			p.once.Do(func() { p.answer = a; close(p.done) })
			return p, nil
		}
	}
	fresh := filepath.Join(d.dir, newPrefix+q.ID)
	p.file, err = os.OpenFile(fresh, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		if err = hold(p.file); err == nil {
			_, err = p.file.Write(text)
		}
		if err == nil {
			err = os.Rename(fresh, d.path(q.ID, questionSuffix))
		}
		if err != nil {
			p.file.Close()
			os.Remove(fresh)
		}
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	d.open[q.ID] = p
	return p, nil
}

// inherit takes the questions away that q takes the place of, and gives their
// answer. It is gone before it is used: it may be for one act.
func (d *Desk) inherit(q Question) (a Answer, answered bool) {
	names, err := readNames(d.dir)
	if err != nil {
		return a, false
	}
	for _, name := range names {
		id, ok := strings.CutSuffix(name, questionSuffix)
		if !ok || !validID(id) || held(d.path(id, questionSuffix)) {
			continue
		}
		old, err := read(d.dir, id)
		if err != nil || !old.Durable || old.Sandbox != q.Sandbox || old.Digest != q.Digest {
			continue
		}
		if errors.Is(link(d.dir, id, Answer{Verdict: Withdrawn, Digest: q.Digest, At: time.Now()}), os.ErrExist) {
			if old, err = read(d.dir, id); err == nil && old.Answer != nil && old.Answer.Digest == q.Digest && time.Now().Before(old.Until) {
				switch old.Answer.Verdict {
				case Once, Session, No:
					a, answered = *old.Answer, true
				}
			}
		}
		if err := os.Remove(d.path(id, questionSuffix)); err != nil {
			return Answer{}, false // it could be used again
		}
		os.Remove(d.path(id, answerSuffix))
		if answered {
			return a, true
		}
	}
	return a, false
}

func (d *Desk) path(id, suffix string) string { return filepath.Join(d.dir, id+suffix) }

// look takes the answers that are there.
func (d *Desk) look() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.open {
		p.look()
	}
}

// look takes the answer, if there is one. The caller holds the desk's lock.
func (p *Pending) look() {
	var a Answer
	err := readFile(p.desk.path(p.ID, answerSuffix), &a)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil || a.Digest != p.Digest {
		// It was not written by this program, or for something else.
		a = Answer{Verdict: No, By: a.By, Via: a.Via, At: time.Now()}
	}
	p.settle(a)
}

func (p *Pending) settle(a Answer) {
	p.once.Do(func() {
		p.answer = a
		d := p.desk
		delete(d.open, p.ID)
		if p.Durable { // what has been answered must not be found and used once more
			p.remove()
			close(p.done)
			return
		}
		d.kept = append(d.kept, p)
		if len(d.kept) > maxKept {
			d.kept[0].remove()
			d.kept = d.kept[1:]
		}
		close(p.done)
	})
}

// Answer answers the question by the process that asks it. An answer that was
// there before stays.
func (p *Pending) Answer(v Verdict, via string) {
	a := Answer{Verdict: v, Digest: p.Digest, By: userName(), Via: via, At: time.Now()}
	if v == Expired || v == Withdrawn {
		a.By, a.Via = "", ""
	}
	err := link(p.desk.dir, p.ID, a)
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	if p.look(); err != nil && !errors.Is(err, os.ErrExist) {
		// The folder takes nothing any more, so nobody else can answer either.
		if v == Once || v == Session {
			a.Verdict = No
		}
		p.settle(a)
	}
}

// Done is closed when there is an answer.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait waits for the answer. When the time is up, or ctx has ended, it answers
// itself.
func (p *Pending) Wait(ctx context.Context) Answer {
	timer := time.NewTimer(time.Until(p.Until))
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.Answer(Expired, "")
	case <-ctx.Done():
		p.Answer(Withdrawn, "")
	}
	<-p.done
	return p.answer
}

// Leave stops waiting for the answer to a durable question, and leaves it open for
// whoever asks it again.
func (p *Pending) Leave() {
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	p.leave()
}

func (p *Pending) leave() {
	p.once.Do(func() {
		p.answer = Answer{Verdict: Withdrawn, At: time.Now()}
		delete(p.desk.open, p.ID)
		p.file.Close()
		close(p.done)
	})
}

func (p *Pending) remove() {
	os.Remove(p.desk.path(p.ID, questionSuffix))
	os.Remove(p.desk.path(p.ID, answerSuffix))
	p.file.Close()
}

// Close withdraws what is open and removes all of it, but leaves what is durable.
func (d *Desk) Close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	d.closed = true
	for _, p := range d.open {
		if p.Durable {
			p.leave()
			continue
		}
		link(d.dir, p.ID, Answer{Verdict: Withdrawn, Digest: p.Digest, At: time.Now()})
		p.look() // somebody may have been faster, which does not matter any more
		p.settle(Answer{Verdict: Withdrawn})
	}
	for _, p := range d.kept {
		p.remove()
	}
	d.kept = nil
	d.mu.Unlock()
	d.watch.close()
	<-d.done
}
