package audit

import (
	"bytes"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// segments lists the first Seq of each segment, in order.
func segments(dir *os.File) ([]int64, error) {
	fd, err := openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(fd), dir.Name())
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []int64
	for _, n := range names {
		if first, ok := segmentFirst(n); ok {
			list = append(list, first)
		}
	}
	slices.Sort(list)
	return list, nil
}

// Reader reads a log in order, while others write to it. It takes no lock and
// gives whole lines only.
type Reader struct {
	dir   *os.File
	file  *os.File
	first int64 // of the segment
	off   int64 // of what comes next, in it
	buf   []byte
}

// OpenReader reads the log in the folder dir from its start.
func OpenReader(dir string) (*Reader, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Reader{dir: d}, nil
}

// Close lets go of the log.
func (r *Reader) Close() error {
	if r.file != nil {
		r.file.Close()
	}
	return r.dir.Close()
}

// Segment gives the first Seq of the segment that the last line is from, as the
// segment's name says.
func (r *Reader) Segment() int64 { return r.first }

// Next gives the next line without its line end; it is good until the next
// call. io.EOF means that there is no whole one yet; there may be one later.
func (r *Reader) Next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(r.buf, '\n'); i >= 0 {
			line := r.buf[:i]
			r.buf = r.buf[i+1:]
			r.off += int64(i) + 1
			return line, nil
		}
		// A piece of a line is not kept: a writer may cut it off.
		full, err := r.fill()
		if err != nil {
			return nil, err
		}
		if full {
			continue
		}
		switch next, err := r.following(); {
		case err != nil:
			return nil, err
		case !next:
			return nil, io.EOF
		}
	}
}

// fill reads from off; false if there is no whole line.
func (r *Reader) fill() (bool, error) {
	r.buf = nil
	if r.file == nil {
		return false, nil
	}
	b := make([]byte, MaxLine)
	n, err := r.file.ReadAt(b, r.off)
	if err != nil && err != io.EOF {
		return false, err
	}
	end := bytes.LastIndexByte(b[:n], '\n')
	if end < 0 {
		if n == len(b) {
			return false, ErrForm
		}
		return false, nil
	}
	r.buf = b[:end+1]
	return true, nil
}

// Torn gives what lies behind the last whole line of the segment: something
// that is just being written, or was never finished.
func (r *Reader) Torn() ([]byte, error) {
	if r.file == nil {
		return nil, nil
	}
	return io.ReadAll(io.NewSectionReader(r.file, r.off, MaxLine))
}

// following goes on with the next segment, if there is one.
func (r *Reader) following() (bool, error) {
	list, err := segments(r.dir)
	if err != nil {
		return false, err
	}
	i, found := slices.BinarySearch(list, r.first)
	if found {
		i++
	}
	if i == len(list) {
		return false, nil
	}
	// What came to the old one before the new one was there must not be missed.
	if full, err := r.fill(); full || err != nil {
		return full, err
	}
	fd, err := openat(int(r.dir.Fd()), segmentName(list[i]), unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	if r.file != nil {
		r.file.Close()
	}
	r.file, r.first, r.off = os.NewFile(uintptr(fd), segmentName(list[i])), list[i], 0
	return true, nil
}
