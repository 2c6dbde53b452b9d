package terminal

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Errors of Ask.
var (
	// ErrInterrupted: the person typed ^C, or ^D in place of an answer.
	ErrInterrupted = errors.New("the question was interrupted")
	// ErrNoTerminal: there is no terminal that a question could be asked on, or
	// not any more.
	ErrNoTerminal = errors.New("there is no terminal to ask on")
)

const (
	// calm is how long nothing may have been typed before a question counts as
	// seen: what a person types when it appears is meant for the command.
	calm = 400 * time.Millisecond
	// calmWithin bounds the wait for that.
	calmWithin = 10 * time.Second
	// maxAnswer bounds a line that is typed as an answer, in characters.
	maxAnswer = 40
)

// Ask shows a question to the person while the command goes on, and calls answer
// with each line that is typed until it gives true; what it says meanwhile is
// shown. The question's text is shown as it is: all of it that comes from inside
// has to be Printable. One question is asked at a time, others wait.
//
// What the command shows waits for the answer, and what is typed in answer never
// reaches it. What was typed before the question had been on the screen for a
// moment answers nothing: it is thrown away. Ask returns ctx's error when that
// ends first, and ErrNoTerminal when Finish or Abandon is called.
func (r *Relay) Ask(ctx context.Context, text, prompt string, answer func(line string) (reply string, done bool)) error {
	if r.term == nil {
		return ErrNoTerminal
	}
	wake, err := newFlag()
	if err != nil {
		return err
	}
	defer wake.close()
	defer context.AfterFunc(ctx, wake.raise)()
	defer context.AfterFunc(r.ending, wake.raise)()
	over := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.ending.Err() != nil || r.hungUp.Load() {
			return ErrNoTerminal
		}
		return nil
	}

	r.turn.Lock()
	defer r.turn.Unlock()
	if err := over(); err != nil {
		return err
	}
	r.gate.Lock()
	defer r.gate.Unlock()
	if err := over(); err != nil {
		return err
	}
	if !r.term.Foreground() {
		return ErrNoTerminal
	}
	r.asking.Store(true)
	defer r.asking.Store(false)
	r.asked.Store(true)
	full := r.screen.fullScreen()
	for _, f := range r.filters {
		_ = f.Leave()
	}
	if r.screen.Asked() {
		r.term.settle()
	}
	q := dialogue{in: descriptor(r.person.In), out: descriptor(r.person.Out), cut: descriptor(r.cut.read), wake: descriptor(wake.read)}
	err = q.hold(text, prompt, answer)
	if err == errWoken {
		err = over()
	}
	if err == ErrNoTerminal {
		r.hungUp.CompareAndSwap(false, q.gone)
	}
	for _, f := range r.filters {
		_ = f.Reenter()
	}
	if full && err != ErrNoTerminal {
		// The screen that it had drawn is gone: a change of size makes it draw anew.
		size := r.term.Size()
		less := size
		less.Rows = max(less.Rows, 2) - 1
		_ = SetSize(r.inside.Pty, less)
		_ = SetSize(r.inside.Pty, size)
	}
	return err
}

// errWoken says that the wait for an answer was ended from outside.
var errWoken = errors.New("woken")

// dialogue is a question on a terminal that is in raw mode.
type dialogue struct {
	in, out, cut, wake int
	gone               bool // the terminal is
}

func (q *dialogue) show(text string) error {
	var out []byte
	for _, b := range []byte(text) {
		if b == '\n' {
			out = append(out, '\r')
		}
		out = append(out, b)
	}
	return writeAll(q.out, out, q.cut)
}

// hold asks until there is an answer.
func (q *dialogue) hold(text, prompt string, answer func(string) (string, bool)) error {
	// The bell, since the person may look elsewhere.
	if err := q.show("\a\n" + text); err != nil {
		return ErrNoTerminal
	}
	if err := q.settle(); err != nil {
		return err
	}
	for {
		if err := q.show(prompt); err != nil {
			return ErrNoTerminal
		}
		line, err := q.line()
		if err != nil {
			_ = q.show("\n")
			return err
		}
		reply, done := answer(line)
		if err := q.show(reply); err != nil {
			return ErrNoTerminal
		}
		if done {
			return nil
		}
	}
}

// settle throws away what is typed until nothing has been for a moment.
func (q *dialogue) settle() error {
	end := time.Now().Add(calmWithin)
	buf := make([]byte, 4096)
	for time.Now().Before(end) {
		got, err := wait(q.in, false, q.wake, calm)
		if err != nil {
			return ErrNoTerminal
		}
		if got.woken {
			return errWoken
		}
		if !got.ready {
			return nil
		}
		if err := q.read(got, buf, func([]byte) {}); err != nil {
			return err
		}
	}
	return nil
}

// read takes what is there.
func (q *dialogue) read(got readiness, buf []byte, take func([]byte)) error {
	n, err := read(q.in, buf)
	switch {
	case err == unix.EAGAIN:
	case err != nil, n == 0 && got.hangup:
		q.gone = true
		return ErrNoTerminal
	default:
		take(buf[:n])
	}
	return nil
}

// line reads a line as a terminal in line mode would, of ASCII characters. What
// stands behind its end is thrown away.
func (q *dialogue) line() (string, error) {
	var line []byte
	buf := make([]byte, 256)
	for {
		got, err := wait(q.in, false, q.wake, -1)
		if err != nil {
			return "", ErrNoTerminal
		}
		if got.woken {
			return "", errWoken
		}
		var echo []byte
		ended := false
		var stopped error
		err = q.read(got, buf, func(keys []byte) { line, echo, ended, stopped = edit(line, keys) })
		if shown := writeAll(q.out, echo, q.cut); shown != nil {
			return "", ErrNoTerminal
		}
		if err != nil || ended {
			return string(line), cmp.Or(err, stopped)
		}
	}
}

// edit does what keys do to a line.
func edit(line, keys []byte) (now, echo []byte, ended bool, err error) {
	erase := func() {
		line = line[:len(line)-1]
		echo = append(echo, "\b \b"...)
	}
	for _, k := range keys {
		switch {
		case k == '\r' || k == '\n':
			return line, append(echo, "\r\n"...), true, nil
		case k == 3, k == 4 && len(line) == 0:
			return line, append(echo, "^C"...), true, ErrInterrupted
		case (k == del || k == '\b') && len(line) > 0:
			erase()
		case k == 21: // ^U
			for len(line) > 0 {
				erase()
			}
		case k == esc: // an arrow or another key that is a sequence
			return line, echo, false, nil
		case k >= 0x20 && k < del && len(line) < maxAnswer:
			line, echo = append(line, k), append(echo, k)
		}
	}
	return line, echo, false, nil
}
