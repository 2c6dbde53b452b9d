package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// tail is where the next record goes.
type tail struct {
	file  *os.File // the last segment; nil: not looked at yet
	first int64    // the Seq its name says
	size  int64    // up to the end of the last record
	link  link     // the last record
}

const (
	lockName = "lock"
	headName = "head"
	suffix   = ".log"
)

func segmentName(first int64) string { return fmt.Sprintf("%020d%s", first, suffix) }

// segmentFirst reads a segment's name.
func segmentFirst(name string) (int64, bool) {
	n, err := strconv.ParseInt(trimSuffix(name), 10, 64)
	return n, err == nil && n > 0 && segmentName(n) == name
}

func trimSuffix(name string) string {
	if len(name) > len(suffix) {
		return name[:len(name)-len(suffix)]
	}
	return ""
}

// file opens a file of the log, making it if need be. What root makes belongs to
// the folder's owner: the gate's process may be another user than root.
func (l *Log) file(name string) (*os.File, error) {
	fd, err := openat(int(l.dir.Fd()), name, unix.O_RDWR)
	if !errors.Is(err, unix.ENOENT) {
		return newFile(fd, name, err)
	}
	fd, err = openat(int(l.dir.Fd()), name, unix.O_RDWR|unix.O_CREAT)
	l.made = true
	if err == nil && os.Geteuid() == 0 {
		var st unix.Stat_t
		if err = unix.Fstat(int(l.dir.Fd()), &st); err == nil && st.Uid != 0 {
			err = unix.Fchown(fd, int(st.Uid), int(st.Gid))
		}
		if err != nil {
			unix.Close(fd)
		}
	}
	return newFile(fd, name, err)
}

func newFile(fd int, name string, err error) (*os.File, error) {
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func openat(dir int, name string, flags int) (fd int, err error) {
	for {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// catchUp finds the log's end again if somebody else has written, and mends what
// is torn. The log is locked.
func (l *Log) catchUp() error {
	if l.tail.file == nil {
		first, err := l.lastSegment()
		if err == nil {
			err = l.enter(first)
		}
		if err != nil {
			return err
		}
		l.tail.size = -1 // an empty one follows on a segment that was not read, too
	}
	for {
		size, err := fileSize(l.tail.file)
		if err != nil {
			return err
		}
		if size != l.tail.size {
			if err := l.reread(size); err != nil {
				return err
			}
		}
		if l.tail.link.seq+1 < l.tail.first {
			return errors.New("a segment of the audit log holds records from before its name: see what bailey audit verify says")
		}
		if l.tail.link.kind != KindRotate {
			break
		}
		// Whoever wrote that may not have come to making the next one.
		before := l.tail.link
		if err := l.enter(before.seq + 1); err != nil {
			return err
		}
		l.tail.link = link{before.seq, "", before.hash}
	}
	return l.checkHead()
}

func fileSize(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Size, nil
}

// enter makes a segment the one to append to; nothing of it is read.
func (l *Log) enter(first int64) error {
	f, err := l.file(segmentName(first))
	if err != nil {
		return err
	}
	if l.tail.file != nil {
		// Its last records must not be later on disk than those of the next.
		err = l.sync(l.tail.file)
		l.tail.file.Close()
	}
	l.tail.file, l.tail.first, l.tail.size = f, first, 0
	if err != nil {
		l.fail(err)
	}
	return err
}

// lastSegment gives the first Seq of the last segment; 1 if there is none.
func (l *Log) lastSegment() (int64, error) {
	list, err := segments(l.dir)
	if err != nil || len(list) == 0 {
		return 1, err
	}
	return list[len(list)-1], nil
}

// reread reads the end of the segment, which is size long.
func (l *Log) reread(size int64) error {
	// A few lines are mostly enough, and twice the longest always.
	var block []byte
	var end int
	for _, n := range []int64{4 << 10, 2 * MaxLine} {
		block = make([]byte, min(size, n))
		if _, err := l.tail.file.ReadAt(block, size-int64(len(block))); err != nil && err != io.EOF {
			return err
		}
		end = bytes.LastIndexByte(block, '\n') + 1
		if bytes.IndexByte(block, '\n')+1 < end {
			break // a whole line lies between the two
		}
	}
	torn := block[end:]
	if end == 0 && int64(len(block)) < size {
		return errors.New("the end of the audit log is no record: see what bailey audit verify says")
	}
	switch {
	case end > 0:
		line := block[:end-1]
		line = line[bytes.LastIndexByte(line, '\n')+1:]
		k, err := parseLink(line)
		if err != nil {
			return errors.New("the last line of the audit log is no record: see what bailey audit verify says")
		}
		l.tail.link = k
	case l.tail.first > 1:
		if err := l.before(); err != nil {
			return err
		}
	default:
		l.tail.link = link{}
	}
	l.tail.size = size - int64(len(torn))
	if len(torn) == 0 {
		return nil
	}
	sum := sha256.Sum256(torn)
	if err := unix.Ftruncate(int(l.tail.file.Fd()), l.tail.size); err != nil {
		return err
	}
	return l.own(&Record{Kind: KindGap, Gap: &Gap{Why: GapTorn, Bytes: int64(len(torn)), Digest: hex.EncodeToString(sum[:])}}, l.tail.link.seq+1)
}

// before finds the last record of the segment before, for one that is empty.
func (l *Log) before() error {
	list, err := segments(l.dir)
	if err != nil {
		return err
	}
	for i, first := range list {
		if first != l.tail.first || i == 0 {
			continue
		}
		f, err := l.file(segmentName(list[i-1]))
		if err != nil {
			return err
		}
		defer f.Close()
		size, err := fileSize(f)
		if err != nil {
			return err
		}
		block := make([]byte, min(size, MaxLine))
		if _, err := f.ReadAt(block, size-int64(len(block))); err != nil && err != io.EOF {
			return err
		}
		line := bytes.TrimSuffix(block, []byte{'\n'})
		k, err := parseLink(line[bytes.LastIndexByte(line, '\n')+1:])
		if err != nil || k.kind != KindRotate || k.seq+1 != first {
			break
		}
		l.tail.link = link{k.seq, "", k.hash}
		return nil
	}
	return errors.New("the segment before the last one of the audit log is missing or damaged: see what bailey audit verify says")
}

// rotate ends the segment and makes the next. The log is locked and caught up.
func (l *Log) rotate() error {
	if err := l.own(&Record{Kind: KindRotate}, l.tail.link.seq+1); err != nil {
		return err
	}
	k := l.tail.link
	if err := l.enter(k.seq + 1); err != nil {
		return err
	}
	l.tail.link = link{k.seq, "", k.hash}
	return nil
}

// put writes lines behind the last record. If it cannot, none of them is there.
func (l *Log) put(lines []byte, last link) error {
	for done := 0; done < len(lines); {
		n, err := unix.Pwrite(int(l.tail.file.Fd()), lines[done:], l.tail.size+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			// If cutting fails too, the size tells the next writer that it is torn.
			_ = unix.Ftruncate(int(l.tail.file.Fd()), l.tail.size)
			return err
		}
		done += n
	}
	l.tail.size += int64(len(lines))
	l.tail.link = last
	return nil
}
