package execlog

import (
	"context"
	"io/fs"
	"os"
	"sync"

	"github.com/bailey-sandbox/bailey"
)

// Stream is one of the two streams of an execution.
type Stream int

// The streams. A terminal's output is all Stdout.
const (
	Stdout Stream = iota
	Stderr
)

var names = [...]string{"stdout", "stderr"}

// String gives the stream's name.
func (s Stream) String() string { return names[s] }

// Info is what is kept of a stream: bytes From to To.
type Info struct {
	From, To int64
	Closed   bool // nothing more will come
}

// Log is the output of one execution. Its methods may be called by any number of
// goroutines at once.
type Log struct {
	dir     string
	streams [2]stream
	wg      sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed at the next change; nil when nobody waits
	stop    chan struct{} // closed by Close
	stopped bool
}

// Open opens the log in the folder dir, which is made when the first byte comes,
// and finds what an earlier process has left in it. limit bounds what is kept of
// each stream in bytes, MinCap to MaxCap; 0 is DefaultCap. No stream is open
// before Pump or PumpTerminal.
func Open(dir string, limit int64) (*Log, error) {
	if limit == 0 {
		limit = DefaultCap
	}
	if limit < MinCap || limit > MaxCap {
		return nil, bailey.Errorf(bailey.CodeUsage, "keep the output of a command", "use 64 KiB to 16 GiB", "a bound of %d bytes is out of range", limit)
	}
	l := &Log{dir: dir, stop: make(chan struct{})}
	for i := range l.streams {
		s := &l.streams[i]
		s.l, s.name, s.limit, s.segSize, s.fd, s.closed = l, names[i], limit, segmentSize(limit), -1, true
		var err error
		if s.segs, s.end, err = find(dir, s.name); err != nil {
			return nil, storage("read", err)
		}
	}
	return l, nil
}

// Remove removes the log in the folder dir.
func Remove(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return storage("remove", err)
	}
	return nil
}

func storage(verb string, err error) error {
	return bailey.Errorf(bailey.CodeStorage, verb+" the output of a command", "see that the disk has room and the data folder is yours", "%w", err)
}

// Info says what is kept of a stream.
func (l *Log) Info(i Stream) Info {
	s := &l.streams[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	return Info{From: s.from(), To: s.end, Closed: s.closed}
}

// Size is how many bytes are kept, of both streams.
func (l *Log) Size() (n int64) {
	for i := range l.streams {
		info := l.Info(Stream(i))
		n += info.To - info.From
	}
	return n
}

// Trim drops all that is kept of streams that are closed, and gives how many
// bytes that were. Offsets stay.
func (l *Log) Trim() (n int64) {
	for i := range l.streams {
		s := &l.streams[i]
		s.mu.Lock()
		if s.closed && len(s.segs) > 0 {
			n += s.end - s.from()
			s.trim()
		}
		s.mu.Unlock()
	}
	return n
}

// Changed gives a channel that is closed when more has come or a stream was
// closed since the call. Get it before looking, then wait.
func (l *Log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

func (l *Log) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Mark says where the streams would end if nobody wrote from now on: what is in
// the files, and what waits before them. Called after a process has ended, all
// that it wrote lies below.
func (l *Log) Mark() [2]int64 {
	var at [2]int64
	for i := range l.streams {
		at[i] = l.streams[i].mark()
	}
	l.tell()
	return at
}

// Reach waits until the streams have got as far as at, or are closed.
func (l *Log) Reach(ctx context.Context, at [2]int64) error {
	for {
		ch := l.Changed()
		there := true
		for i := range l.streams {
			info := l.Info(Stream(i))
			there = there && (info.To >= at[i] || info.Closed)
		}
		if there {
			return nil
		}
		select {
		case <-ch:
		case <-l.stop:
			return fs.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close lets go of the descriptors and returns when nothing moves any more. What
// is in the pipes stays there. The log can still be read.
func (l *Log) Close() {
	l.mu.Lock()
	if !l.stopped {
		l.stopped = true
		close(l.stop)
	}
	l.mu.Unlock()
	for i := range l.streams {
		l.streams[i].release()
	}
	l.wg.Wait()
	l.tell()
}
