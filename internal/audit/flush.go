package audit

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// flush has records on disk soon after they are written: those that come after
// a pause at once, so that the head says early that the log is in use, and then
// all that came in Options.Sync together.
func (l *Log) flush() {
	first := true
	timer := time.NewTimer(0)
	<-timer.C
	for {
		select {
		case <-l.dirty:
		case <-l.quit:
			l.flushLast()
			return
		}
		if !first || !l.opt.Lazy {
			l.fail(l.flushNow())
		} else {
			l.wake() // look again when Sync has passed
		}
		first = false
		timer.Reset(l.opt.Sync)
		select {
		case <-timer.C:
		case <-l.quit:
			timer.Stop()
			l.flushLast()
			return
		}
	}
}

func (l *Log) flushLast() {
	select {
	case <-l.dirty:
	default:
		return
	}
	if l.opt.Lazy {
		beginWriting(l.tail.file)
		return
	}
	l.fail(l.flushNow())
}

// flushNow syncs the segment and then says so in the head.
func (l *Log) flushNow() error {
	l.write.Lock()
	fd, err := unix.FcntlInt(l.tail.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	upTo, made, signed := l.tail.link, l.made, l.signed
	l.made, l.signed = false, nil
	l.write.Unlock()
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "segment")
	defer f.Close()
	if err := l.sync(f); err != nil {
		return err
	}
	if made {
		if err := l.sync(l.dir); err != nil {
			return err
		}
	}
	if err := l.markSynced(upTo); err != nil {
		return err
	}
	if err := l.sync(l.head); err != nil || signed == nil {
		return err
	}
	// Not before: it must never speak of a checkpoint that power loss took.
	return l.opt.Signer.Keep(signed.Seq, signed.Prev, signed.Checkpoint)
}

func (l *Log) markSynced(upTo link) error {
	l.write.Lock()
	defer l.write.Unlock()
	if err := lockFile(l.lock); err != nil {
		return err
	}
	defer unlockFile(l.lock)
	h, ok, err := readHead(l.head)
	if err != nil {
		return err
	}
	if ok && h.link.seq > upTo.seq {
		return nil // somebody else was faster
	}
	size, err := fileSize(l.tail.file)
	if err != nil {
		return err
	}
	h.link, h.boot = upTo, l.boot
	h.open = size != l.tail.size || l.tail.link.seq != upTo.seq || l.tail.link.kind == KindRotate
	return l.putHead(h)
}

// datasync is fdatasync(2). A file system that cannot (it says EINVAL) keeps
// nothing over a loss of power anyway.
func datasync(f *os.File) error {
	for {
		switch err := fdatasync(int(f.Fd())); {
		case err == unix.EINTR:
		case errors.Is(err, unix.EINVAL):
			return nil
		default:
			return err
		}
	}
}
