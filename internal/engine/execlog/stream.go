package execlog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// stream is one stream's files and where its bytes come from.
type stream struct {
	l              *Log
	name           string
	limit, segSize int64

	mu     sync.Mutex
	segs   []segment // contiguous, the oldest first
	end    int64     // offset behind the last byte
	fd     int       // the last segment, for writing; -1 until it is needed
	closed bool      // nothing more will come
	src    *source   // nil when closed
}

// from is the offset of the first byte that is kept. s.mu is held.
func (s *stream) from() int64 {
	if len(s.segs) == 0 {
		return s.end
	}
	return s.segs[0].start
}

func (s *stream) path(start int64) string {
	return filepath.Join(s.l.dir, segmentName(s.name, start))
}

// room gives how many bytes the last segment still takes, beginning one if need
// be. s.mu is held.
func (s *stream) room() (int64, error) {
	if n := len(s.segs); n > 0 {
		last := s.segs[n-1].start
		if left := s.segSize - (s.end - last); left > 0 {
			if s.fd >= 0 {
				return left, nil
			}
			fd, err := openFile(s.path(last), syscall.O_WRONLY)
			if err != nil {
				return 0, err
			}
			s.fd = fd
			return left, nil
		}
	}
	s.closeFile()
	drop := 0
	for drop < len(s.segs) && s.end-s.segs[drop].start+s.segSize > s.limit {
		if err := os.Remove(s.path(s.segs[drop].start)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		drop++
	}
	s.segs = s.segs[drop:]
	fd, err := openFile(s.path(s.end), syscall.O_WRONLY|syscall.O_CREAT)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(s.l.dir, 0o700); err != nil {
			return 0, err
		}
		fd, err = openFile(s.path(s.end), syscall.O_WRONLY|syscall.O_CREAT)
	}
	if err != nil {
		return 0, err
	}
	s.segs, s.fd = append(s.segs, segment{s.end}), fd
	return s.segSize, nil
}

// offset is where in the last segment the next byte goes. s.mu is held.
func (s *stream) offset() int64 { return s.end - s.segs[len(s.segs)-1].start }

// trim drops everything. An empty segment keeps the place where it ended. s.mu
// is held.
func (s *stream) trim() {
	s.closeFile()
	if fd, err := openFile(s.path(s.end), syscall.O_WRONLY|syscall.O_CREAT); err == nil {
		syscall.Close(fd)
	}
	for _, g := range s.segs {
		if g.start != s.end {
			os.Remove(s.path(g.start))
		}
	}
	s.segs = nil
}

func (s *stream) closeFile() {
	if s.fd >= 0 {
		syscall.Close(s.fd)
		s.fd = -1
	}
}

func openFile(path string, flags int) (int, error) {
	for {
		fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o600)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}
