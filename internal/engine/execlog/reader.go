package execlog

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/bailey-sandbox/bailey"
)

// Reader reads one stream from an offset on. It is used by one goroutine at a
// time and must be closed.
type Reader struct {
	s     *stream
	at    int64
	f     *os.File
	start int64 // offset of f's first byte
}

// Reader gives a reader that begins at offset from. One behind the end is an
// error with code usage.
func (l *Log) Reader(i Stream, from int64) (*Reader, error) {
	info := l.Info(i)
	if from < 0 || from > info.To {
		return nil, bailey.Errorf(bailey.CodeUsage, "read the output of a command", "", "%s has %d bytes, and offset %d is none of them", i, info.To, from)
	}
	return &Reader{s: &l.streams[i], at: from}, nil
}

// Read gives bytes that are there. It never waits: n is 0 when there is nothing
// more now. offset is that of p's first byte; dropped counts bytes before it that
// were asked for and are kept no more.
func (r *Reader) Read(p []byte) (n int, offset, dropped int64, err error) {
	missed := 0
	for {
		r.s.mu.Lock()
		from, end := r.s.from(), r.s.end
		next, limit := r.find()
		r.s.mu.Unlock()
		if r.f == nil || r.at >= limit {
			if r.at < from {
				dropped, r.at = dropped+from-r.at, from
				continue
			}
			if r.at >= end {
				return 0, r.at, dropped, nil
			}
			err := r.open(next)
			if errors.Is(err, fs.ErrNotExist) && missed < 100 {
				missed++
				continue // it was dropped just now
			}
			if err != nil {
				return 0, r.at, dropped, storage("read", err)
			}
			continue
		}
		// A segment that is open can be read though it was dropped meanwhile.
		n, err = r.f.ReadAt(p[:min(int64(len(p)), limit-r.at)], r.at-r.start)
		if n == 0 && err == io.EOF && len(p) > 0 {
			return 0, r.at, dropped, storage("read", errors.New("a file of it is shorter than it was"))
		}
		offset = r.at
		r.at += int64(n)
		if n > 0 || err == io.EOF {
			err = nil
		}
		if err != nil {
			err = storage("read", err)
		}
		return n, offset, dropped, err
	}
}

// find gives the start of the segment in which the next byte lies, and where the
// bytes of the open one end. s.mu is held.
func (r *Reader) find() (next, limit int64) {
	next, limit = -1, r.at
	kept := false
	for i, g := range r.s.segs {
		end := r.s.end
		if i+1 < len(r.s.segs) {
			end = r.s.segs[i+1].start
		}
		if r.at >= g.start && r.at < end {
			next = g.start
		}
		if r.f != nil && g.start == r.start {
			limit, kept = end, true
		}
	}
	if r.f != nil && !kept { // it was dropped: it is complete then
		if info, err := r.f.Stat(); err == nil {
			limit = r.start + info.Size()
		}
	}
	return next, limit
}

func (r *Reader) open(start int64) error {
	f, err := os.Open(r.s.path(start))
	if err != nil {
		return err
	}
	r.Close()
	r.f, r.start = f, start
	return nil
}

// Offset is that of the next byte.
func (r *Reader) Offset() int64 { return r.at }

// Close lets go of the file.
func (r *Reader) Close() error {
	if r.f == nil {
		return nil
	}
	f := r.f
	r.f = nil
	return f.Close()
}
