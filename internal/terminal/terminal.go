package terminal

import (
	"bytes"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Size is a window's size, in character cells and in pixels. Pixels are 0
// where the terminal does not tell.
type Size struct {
	Rows, Cols     uint16
	XPixel, YPixel uint16
}

// SizeOf asks for the window size of the terminal f. It reports false if f is
// no terminal.
func SizeOf(f *os.File) (Size, bool) {
	ws, err := unix.IoctlGetWinsize(descriptor(f), unix.TIOCGWINSZ)
	if err != nil {
		return Size{}, false
	}
	return Size{ws.Row, ws.Col, ws.Xpixel, ws.Ypixel}, true
}

// SetSize sets the window size of the terminal f; through the master of a
// pseudo-terminal, its foreground processes get SIGWINCH if the size changed.
func SetSize(f *os.File, s Size) error {
	return unix.IoctlSetWinsize(descriptor(f), unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols, Xpixel: s.XPixel, Ypixel: s.YPixel})
}

// Is reports whether f is a terminal.
func Is(f *os.File) bool {
	if f == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(descriptor(f), getTermios)
	return err == nil
}

// descriptor gives the number behind f without what File.Fd does to it: that
// call may change whether the file blocks, for everyone who shares it.
func descriptor(f *os.File) int {
	fd := -1
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(p uintptr) { fd = int(p) })
	}
	return fd
}

// Terminal is the terminal of the person: what is typed comes from one file,
// what is shown goes to another, usually the same device.
//
// Its methods may be called from any goroutine.
type Terminal struct {
	in, out *os.File

	mu    sync.Mutex
	raw   bool
	saved unix.Termios // as it was before Raw
	ours  unix.Termios // as Raw set it
}

// Open takes the two files of a terminal. It changes nothing yet.
func Open(in, out *os.File) (*Terminal, error) {
	if !Is(in) || !Is(out) {
		return nil, bailey.Errorf(bailey.CodeUsage, "take over the terminal", "start it from a terminal, or without asking for one",
			"standard input and output are not both a terminal")
	}
	return &Terminal{in: in, out: out}, nil
}

// Size gives the size of the terminal's window.
func (t *Terminal) Size() Size {
	s, ok := SizeOf(t.out)
	if !ok {
		s, _ = SizeOf(t.in)
	}
	return s
}

// Foreground reports whether this process's group may read the terminal.
func (t *Terminal) Foreground() bool { return foreground(descriptor(t.in)) }

func foreground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	// A terminal that does not control this session has no foreground for us,
	// and nothing that would stop us.
	return err != nil || group == unix.Getpgrp()
}

// Raw makes the terminal hand over every key as it is typed, and remembers how
// it was. A process in the background is stopped by SIGTTOU here, as every
// program is that changes a terminal that is not its own at the moment; the
// call goes on when the job comes to the foreground. Where that signal is
// ignored the call fails, so that the terminal is left alone in any case.
func (t *Terminal) Raw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.Foreground() && ignored(unix.SIGTTOU) {
		return bailey.Errorf(bailey.CodeUsage, "take over the terminal", "bring the command to the foreground, or redirect its input, as in </dev/null",
			"the command runs in the background")
	}
	fd := descriptor(t.in)
	// In the background this stops us before anything was read, so that what
	// is remembered is not the state of another program.
	if !t.Foreground() {
		now, err := unix.IoctlGetTermios(fd, getTermios)
		if err == nil {
			err = setTermios(fd, setDrain, now)
		}
		if err != nil {
			return t.failed("take over the terminal", err)
		}
	}
	now, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return t.failed("take over the terminal", err)
	}
	// After a stop that nobody announced, the shell may have put back our own
	// settings; those are not what has to be restored.
	if t.ours == (unix.Termios{}) || *now != t.ours {
		t.saved = *now
	}
	raw := t.saved
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	// A read that finds nothing returns at once: another reader of the same
	// terminal must not make us wait beyond the end of the command.
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 0, 0
	if err := setTermios(fd, setDrain, &raw); err != nil {
		return t.failed("take over the terminal", err)
	}
	if now, err := unix.IoctlGetTermios(fd, getTermios); err == nil {
		raw = *now // what the driver made of it
	}
	t.ours, t.raw = raw, true
	return nil
}

// Restore puts the settings back as they were before Raw, once. With flush,
// what was typed and not read is thrown away.
func (t *Terminal) Restore(flush bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.raw {
		return nil
	}
	t.raw = false
	how := setDrain
	if flush {
		how = setFlush
	}
	if err := setTermios(descriptor(t.in), how, &t.saved); err != nil {
		return t.failed("restore the terminal", err)
	}
	return nil
}

// restoreNow is Restore for a process that is about to die: it waits neither
// for the lock nor for output to drain.
func (t *Terminal) restoreNow() {
	if t.mu.TryLock() {
		defer t.mu.Unlock()
	}
	if t.raw {
		t.raw = false
		_ = setTermios(descriptor(t.in), setNow, &t.saved)
	}
}

func (t *Terminal) failed(what string, err error) error {
	return bailey.Errorf(bailey.CodeSetupFailed, what, "if keys do not show any more, type: stty sane", "%w", err)
}

func setTermios(fd int, how uint, to *unix.Termios) error {
	for {
		err := unix.IoctlSetTermios(fd, how, to)
		if err != unix.EINTR {
			return err
		}
	}
}

// answerWait is how long a terminal may take to answer at the end. Those over
// slow lines take the time of a round trip.
const answerWait = 300 * time.Millisecond

// settle reads, in raw mode, what the terminal still sends on behalf of the
// program that has ended, so that a shell does not take it for commands. It
// asks for the terminal's status; terminals answer in order, so that all other
// answers are there when this one is. A terminal that does not answer costs
// answerWait.
func (t *Terminal) settle() {
	if writeAll(descriptor(t.out), []byte("\x1b[5n"), -1) != nil {
		return
	}
	in := descriptor(t.in)
	deadline := time.Now().Add(answerWait)
	var got []byte
	buf := make([]byte, 4096)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return
		}
		r, err := wait(in, false, -1, left)
		if err != nil || !r.ready {
			return
		}
		n, err := read(in, buf)
		if err != nil || n == 0 && r.hangup {
			return
		}
		got = append(got, buf[:n]...)
		if bytes.Contains(got, []byte("\x1b[0n")) {
			return
		}
		if len(got) > 8 { // the answer may be split over reads
			got = append(got[:0], got[len(got)-8:]...)
		}
	}
}
