package audit

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Options are a log's settings; the zero value is good.
type Options struct {
	// Signer makes checkpoints. Nil: this writer makes none, and what it writes is
	// covered by the next one of a writer that does.
	Signer Signer
	// Every is after how many records a checkpoint is made (1024), Interval after
	// how long (30 s) if anything was written since.
	Every    int64
	Interval time.Duration
	// SegmentSize is after how many bytes a new segment begins (64 MiB).
	SegmentSize int64
	// Sync is how long a record may wait to be on disk (500 ms, with room for a
	// slow disk in the second that is promised).
	Sync time.Duration
	// Lazy is for a process that may live for milliseconds: nothing is synced
	// before Sync has passed, and Close has the kernel begin to write but does not
	// wait. The head goes on saying that the log is in use, so that after a loss of
	// power the next writer records that something may be missing.
	Lazy bool
	// Clock is time.Now.
	Clock func() time.Time
}

// Log appends to a log. Its methods may be called from several goroutines, and
// several processes may have it open.
type Log struct {
	opt  Options
	dir  *os.File
	lock *os.File
	head *os.File
	boot string
	sync func(*os.File) error // fdatasync, but in tests

	mu      sync.Mutex // guards the next six
	queue   []*request
	later   []*request // whose writers do not wait
	armed   *time.Timer
	leading bool
	closed  bool
	idle    *sync.Cond

	write     sync.Mutex // held by who appends or flushes the tail's file
	tail      tail
	buf       []byte
	made      bool               // a segment was made and its name is not on disk
	checked   bool               // the head was compared with the log's end
	now, seen [2 * slotSize]byte // the head now, and when it last said that the log is in use
	signed    *Record            // this writer's last checkpoint, until it is kept
	since     int64              // records since this writer's last checkpoint
	last      time.Time          // of that

	failMu sync.Mutex
	failed error // of a sync: what was acknowledged may be lost

	dirty   chan struct{}
	quit    chan struct{}
	flusher sync.WaitGroup
}

type request struct {
	rec    *Record
	middle []byte
	err    error
	done   chan struct{}
}

var requests = sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }}

func failure(err error) error {
	var be *bailey.Error
	if errors.As(err, &be) {
		return err
	}
	return bailey.Errorf(bailey.CodeAudit, "write the audit log", "make room on the disk and check the folder audit of Bailey's data folder; nothing runs without the log", "%w", err)
}

// Open opens the log in the folder dir, making it if it is not there. A torn
// end is found now but mended by the first Append. The path is not needed again:
// who gives up rights afterwards must still be able to make, read, write and cut
// files in the folder.
func Open(dir string, opt Options) (*Log, error) {
	l := &Log{opt: opt.withDefaults(), boot: bootID(), sync: datasync, dirty: make(chan struct{}, 1), quit: make(chan struct{})}
	l.idle = sync.NewCond(&l.mu)
	if err := l.open(dir); err != nil {
		l.closeFiles()
		return nil, failure(err)
	}
	l.last = l.opt.Clock()
	l.flusher.Go(l.flush)
	return l, nil
}

func (o Options) withDefaults() Options {
	if o.Every == 0 {
		o.Every = 1024
	}
	if o.Interval == 0 {
		o.Interval = 30 * time.Second
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = 64 << 20
	}
	if o.Sync == 0 {
		o.Sync = 500 * time.Millisecond
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return o
}

func (l *Log) open(dir string) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if l.dir, err = os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err != nil {
		return err
	}
	if l.lock, err = l.file(lockName); err != nil {
		return err
	}
	l.head, err = l.file(headName)
	return err
}

func (l *Log) closeFiles() {
	for _, f := range []*os.File{l.dir, l.lock, l.head, l.tail.file} {
		if f != nil {
			f.Close()
		}
	}
}

// Append writes a record and sets its Seq, Time, Prev and Hash. When it returns
// nil the record is in the kernel. After an error nothing of it is in the log,
// and what it stands for must not be done. Texts that are too long are cut in
// the log with a mark; rec keeps them.
func (l *Log) Append(rec *Record) error { return l.AppendAll(rec) }

// AppendAll is Append of several records, in one write. After an error some of
// them may be in the log if they are more than one write has.
func (l *Log) AppendAll(records ...*Record) error {
	var one [1]*request
	list := one[:0]
	for _, r := range records {
		q := requests.Get().(*request)
		q.rec, q.err = r, nil
		q.middle = appendMiddle(q.middle[:0], r)
		list = append(list, q)
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return failure(os.ErrClosed)
	}
	l.queue = append(l.queue, list...)
	if l.leading {
		l.mu.Unlock()
	} else {
		l.leading = true
		l.lead()
	}
	var err error
	for _, q := range list {
		<-q.done
		if err == nil {
			err = q.err
		}
		q.rec = nil
		requests.Put(q)
	}
	if err != nil {
		return failure(err)
	}
	return nil
}

// laterAfter is how long a record of Later waits for one of Append to go with,
// laterAgain how long when it could not be written. maxLater is how many wait, and
// maxKept how many when they cannot be written.
const (
	laterAfter = 5 * time.Millisecond
	laterAgain = 250 * time.Millisecond
	maxLater   = 256
	maxKept    = 4096
)

// Later appends a record that nothing waits for, as how an act ended: with the
// next one of Append, in one write, or a few milliseconds from now. rec is the
// log's from here on. What cannot be written is kept until it can; if it becomes
// too much the log has a fault, and Append fails from then on.
func (l *Log) Later(rec *Record) {
	q := requests.Get().(*request)
	q.rec, q.err = rec, nil
	q.middle = appendMiddle(q.middle[:0], rec)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.fail(failure(os.ErrClosed))
		return
	}
	l.later = append(l.later, q)
	switch {
	case l.leading: // who leads takes it along
	case len(l.later) >= maxLater:
		l.leading = true
		l.lead()
		return
	case l.armed == nil:
		l.armed = time.AfterFunc(laterAfter, l.writeLater)
	}
	l.mu.Unlock()
}

// writeLater writes what nobody has taken along.
func (l *Log) writeLater() {
	l.mu.Lock()
	l.armed = nil
	if l.leading || len(l.later) == 0 {
		l.mu.Unlock()
		return
	}
	l.leading = true
	l.lead()
}

// maxBatch is how many records one write has at most.
const maxBatch = 512

// lead writes what is queued until nothing is. mu is held, and let go of.
func (l *Log) lead() {
	for len(l.queue)+len(l.later) > 0 {
		// What nobody waits for is older.
		batch := append(l.later, l.queue...)
		waits := len(l.later)
		l.later, l.queue = nil, nil
		if len(batch) > maxBatch {
			l.later, l.queue = slices.Clone(batch[min(waits, maxBatch):waits]), slices.Clone(batch[max(waits, maxBatch):])
			batch = batch[:maxBatch]
		}
		waits = min(waits, maxBatch)
		l.mu.Unlock()
		l.write.Lock()
		err := l.append(batch)
		l.write.Unlock()
		for _, q := range batch[waits:] {
			q.err = err
			q.done <- struct{}{}
		}
		if err == nil {
			for _, q := range batch[:waits] {
				q.rec = nil
				requests.Put(q)
			}
		}
		l.mu.Lock()
		if err != nil && waits > 0 && l.keep(batch[:waits], err) {
			break
		}
	}
	l.leading = false
	l.idle.Broadcast()
	l.mu.Unlock()
}

// keep keeps records that could not be written, and tells that nothing else is
// there to be written. mu is held.
func (l *Log) keep(list []*request, err error) (done bool) {
	l.later = slices.Concat(list, l.later)
	if len(l.later) > maxKept {
		l.later = nil
		l.fail(err)
	}
	if len(l.queue) > 0 {
		return false
	}
	if l.armed == nil && !l.closed && len(l.later) > 0 {
		l.armed = time.AfterFunc(laterAgain, l.writeLater)
	}
	return true
}

// append writes one batch. write is held.
func (l *Log) append(batch []*request) (err error) {
	if err := l.failure(); err != nil {
		return err
	}
	if err := lockFile(l.lock); err != nil {
		return err
	}
	defer unlockFile(l.lock)
	if err := l.catchUp(); err != nil {
		return err
	}
	if l.tail.size >= l.opt.SegmentSize {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	at := l.opt.Clock()
	now := l.tail.link
	l.buf = l.buf[:0]
	for _, q := range batch {
		r := q.rec
		r.Prev = hex.EncodeToString(now.hash[:])
		now.seq++
		r.Seq, r.Time = now.seq, at.UTC()
		l.buf, now.hash = appendRecord(l.buf, now.seq, at, q.middle, now.hash)
		r.Hash = hex.EncodeToString(now.hash[:])
		now.kind = r.Kind
	}
	if err := l.put(l.buf, now); err != nil {
		return err
	}
	l.since += int64(len(batch))
	if l.opt.Signer != nil && (l.since >= l.opt.Every || at.Sub(l.last) >= l.opt.Interval) {
		// The records are in the log: a checkpoint that fails must not unsay that.
		if err := l.checkpoint(); err != nil {
			l.fail(err)
		}
	}
	l.wake()
	return nil
}

// wake has the flusher look.
func (l *Log) wake() {
	select {
	case l.dirty <- struct{}{}:
	default:
	}
}

// own appends a record of the log's own. The log is locked and caught up.
func (l *Log) own(r *Record, seq int64) error {
	line, sum := appendRecord(nil, seq, l.opt.Clock(), appendMiddle(nil, r), l.tail.link.hash)
	return l.put(line, link{seq, r.Kind, sum})
}

// Close makes a checkpoint if it can, has everything on disk (but see
// Options.Lazy) and lets go of the log. Later calls do nothing.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	for l.leading {
		l.idle.Wait()
	}
	if l.armed != nil {
		l.armed.Stop()
	}
	l.leading = true
	l.lead() // what waits of Later
	l.mu.Lock()
	lost := len(l.later)
	l.mu.Unlock()
	var err error
	if lost > 0 {
		err = failure(fmt.Errorf("%d ends of acts could not be written", lost))
	}
	if l.opt.Signer != nil {
		err = errors.Join(err, l.Checkpoint())
	}
	close(l.quit)
	l.flusher.Wait()
	if e := l.failure(); e != nil {
		err = errors.Join(err, failure(e))
	}
	l.closeFiles()
	return err
}

func (l *Log) fail(err error) {
	if err == nil {
		return
	}
	l.failMu.Lock()
	defer l.failMu.Unlock()
	if l.failed == nil {
		l.failed = err
	}
}

func (l *Log) failure() error {
	l.failMu.Lock()
	defer l.failMu.Unlock()
	return l.failed
}
