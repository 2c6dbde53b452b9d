package terminal

import (
	"io"
	"sync/atomic"
	"unicode/utf8"
)

const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	enq = 0x05
	del = 0x7f

	// maxControl bounds one ESC or CSI sequence, in bytes. The longest that
	// programs send are colour lists of some 60 bytes.
	maxControl = 256
	// maxString bounds one string sequence (OSC, APC, …), in bytes: room for a
	// whole palette of 256 colours and for one 4,096-byte chunk of an image.
	maxString = 8192
)

// Filter is a writer that passes a program's terminal output on to a person's
// terminal, without the sequences by which output attacks a terminal or the
// person in front of it. What it takes out:
//
//   - the clipboard (OSC 52) and every request whose answer would type text
//     that the program chose: title reports, DECRQSS, XTGETTCAP, ENQ, fonts;
//   - what prints, logs, resizes, moves or locks the terminal, defines keys,
//     macros or fonts, moves files, reads the screen back (DECRQCRA), or changes how bytes
//     are parsed (VT52 mode, other coding systems);
//   - links that are not http or https: a file link opens a file of the host,
//     not the one that the program means;
//   - strings that no rule names, and DCS, SOS, PM and APC but for pictures
//     that are sent inline.
//
// Titles and notifications are cleaned and bounded. The 8-bit forms of control
// sequences, raw or encoded as UTF-8, become U+FFFD, which is what terminals
// in UTF-8 show for such bytes. Everything else passes unchanged, byte for
// byte, with two exceptions that no terminal can tell apart: a sequence that
// is cut off by another one is left out, and a control character in the middle
// of a sequence is sent before it.
//
// Memory is bounded whatever is written, and the output does not depend on how
// the input is split over writes. A sequence is held back until it is
// complete. The grammar is that of DEC's VT500 series as xterm has it ("XTerm
// Control Sequences", Dickey) and ECMA-48.
//
// A Filter is used by one goroutine at a time; Attended may be called from any.
type Filter struct {
	w   io.Writer
	out []byte

	state state
	seq   []byte // the sequence so far, from ESC on
	over  bool   // seq got too long or is of no interest: drop it at its end
	kind  byte   // which string: ']', 'P', 'X', '^', '_' or 'k'
	char  []byte // the beginning of a UTF-8 character

	modes   modes
	left    bool         // Leave has been called, and not Reenter
	notices atomic.Int32 // notifications since the person last typed
}

type state uint8

const (
	ground  state = iota
	escape        // after ESC, and ESC with intermediate bytes
	control       // after CSI
	text          // in a string that is collected
	textEsc       // in such a string, after ESC
	stream        // in a picture that is passed on as it comes
	streamEsc
	partial // inside a UTF-8 character
)

// NewFilter returns a Filter that writes to w.
func NewFilter(w io.Writer) *Filter { return &Filter{w: w} }

// plain are the bytes that mean the same in any company.
var plain = func() (t [256]bool) {
	for b := range 0x80 {
		t[b] = b != esc && b != enq
	}
	return
}()

// Write filters p. It reports len(p) unless the writer behind it fails; what
// was held back is then lost.
func (f *Filter) Write(p []byte) (int, error) {
	f.out = f.out[:0]
	f.feed(p)
	if err := f.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *Filter) flush() error {
	if len(f.out) == 0 {
		return nil
	}
	_, err := f.w.Write(f.out)
	if cap(f.out) > 1<<20 {
		f.out = nil
	}
	return err
}

// Close ends the stream: what was held back is dropped, and whatever the
// program left switched on is switched off (see Leave). It does not close the
// writer.
func (f *Filter) Close() error { return f.Leave() }

// Leave brings the terminal back to how programs expect to find it: main
// screen, visible cursor, no mouse reports, no colours, the old title, and so
// on. It undoes only what has passed through this Filter, so that it writes
// nothing after a program that behaved.
func (f *Filter) Leave() error {
	f.out = f.out[:0]
	if !f.left {
		f.abandon()
		f.out = f.modes.undo(f.out)
		f.left = true
	}
	return f.flush()
}

// Reenter switches on again what Leave switched off: for a program that was
// stopped and goes on. It has to come before the next Write.
func (f *Filter) Reenter() error {
	if !f.left {
		return nil
	}
	f.left = false
	f.out = f.modes.redo(f.out[:0])
	return f.flush()
}

// Asked reports whether the terminal may still owe answers that would arrive
// as if typed: the program sent a query, or has mouse or focus reports on.
func (f *Filter) Asked() bool { return f.modes.asked || f.modes.reporting() }

// fullScreen reports whether the program draws on the alternate screen.
func (f *Filter) fullScreen() bool { return !f.left && f.modes.screen() == 1 }

// Attended tells the Filter that the person typed something, which renews the
// number of notifications that may pass.
func (f *Filter) Attended() { f.notices.Store(0) }

// abandon drops what is held back, and closes a picture.
func (f *Filter) abandon() {
	switch f.state {
	case partial:
		for _, b := range f.char {
			f.raw(b)
		}
		f.char = f.char[:0]
	case stream, streamEsc:
		f.out = append(f.out, esc, '\\')
	}
	f.seq, f.over, f.state = f.seq[:0], false, ground
}

func (f *Filter) feed(p []byte) {
	for i := 0; i < len(p); {
		if f.state == ground {
			i += f.ground(p[i:])
			continue
		}
		if f.state == partial {
			f.char = append(f.char, p[i])
			i++
			f.complete()
			continue
		}
		if f.step(p[i]) {
			i++
		}
	}
}

// ground passes text on and returns how many bytes it took, at least one.
func (f *Filter) ground(p []byte) int {
	i := 0
	for i < len(p) && plain[p[i]] {
		i++
	}
	f.out = append(f.out, p[:i]...)
	if i == len(p) {
		return i
	}
	switch b := p[i]; {
	case b == esc:
		f.begin()
		return i + 1
	case b == enq: // asks for the answerback text, which may be settable
		return i + 1
	}
	for i < len(p) && p[i] >= 0x80 {
		if !utf8.FullRune(p[i:]) {
			f.char = append(f.char[:0], p[i:]...)
			f.state = partial
			return len(p)
		}
		r, n := utf8.DecodeRune(p[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			f.raw(p[i])
		case introducer(r):
			f.out = utf8.AppendRune(f.out, utf8.RuneError)
		default:
			f.out = append(f.out, p[i:i+n]...)
		}
		i += n
	}
	return i
}

// complete goes on with the character that began in an earlier write.
func (f *Filter) complete() {
	if !utf8.FullRune(f.char) {
		return
	}
	var whole [utf8.UTFMax]byte
	n := copy(whole[:], f.char)
	f.char, f.state = f.char[:0], ground
	f.feed(whole[:n]) // one level deep: it is full, or its rest is shorter
}

// raw passes on a byte that is not valid UTF-8, unless a terminal that is not
// in UTF-8 takes it for the beginning of a sequence.
func (f *Filter) raw(b byte) {
	if introducer(rune(b)) {
		f.out = utf8.AppendRune(f.out, utf8.RuneError)
		return
	}
	f.out = append(f.out, b)
}

// introducer reports whether r is a C1 control that opens a sequence: DCS,
// SOS, CSI, OSC, PM, APC; or asks for an answer: DECID.
func introducer(r rune) bool {
	switch r {
	case 0x90, 0x98, 0x9a, 0x9b, 0x9d, 0x9e, 0x9f:
		return true
	}
	return false
}

func (f *Filter) begin() {
	f.seq = append(f.seq[:0], esc)
	f.over = false
	f.state = escape
}

// hold keeps one byte of a sequence, within limit.
func (f *Filter) hold(b byte, limit int) {
	if len(f.seq) >= limit {
		f.over = true
	}
	if !f.over {
		f.seq = append(f.seq, b)
	}
}

// step takes one byte of a sequence. It returns false when b ended the
// sequence without being part of it, and has to be looked at again.
func (f *Filter) step(b byte) bool {
	switch f.state {
	case escape, control:
		return f.stepControl(b)
	case text, textEsc:
		return f.stepText(b)
	default:
		return f.stepStream(b)
	}
}

func (f *Filter) stepControl(b byte) bool {
	switch {
	case b == esc:
		f.begin()
		return true
	case b == can || b == sub || b >= 0x80:
		f.state = ground
		return false
	case b == enq || b == del:
		return true
	case b < 0x20:
		f.out = append(f.out, b)
		return true
	}
	if f.state == control {
		f.hold(b, maxControl)
		if b >= 0x40 {
			f.state = ground
			if !f.over {
				f.out = f.judgeControl(f.out, f.seq)
			}
		}
		return true
	}
	f.hold(b, maxControl)
	if b < 0x30 {
		return true
	}
	if len(f.seq) == 2 && !f.over {
		switch b {
		case '[':
			f.state = control
			return true
		case ']', 'P', 'X', '^', '_', 'k':
			f.state, f.kind = text, b
			return true
		}
	}
	f.state = ground
	if !f.over {
		f.out = f.judgeEscape(f.out, f.seq)
	}
	return true
}

func (f *Filter) stepText(b byte) bool {
	if f.state == textEsc {
		if b == '\\' {
			f.state = ground
			f.endText("\x1b\\")
			return true
		}
		f.begin()
		return false
	}
	switch {
	case b == esc:
		f.state = textEsc
		return true
	case b == can || b == sub:
		f.state = ground
		return false
	case b == bel && f.kind == ']':
		f.state = ground
		f.endText("\a")
		return true
	case b < 0x20 && f.kind == 'k':
		// Terminals that do not know ESC k are not inside a string now.
		f.state = ground
		return false
	case b < 0x20 || b == del:
		return true
	}
	f.hold(b, maxString)
	if f.over {
		return true
	}
	switch {
	case f.kind == ']' && linuxPalette(f.seq):
		f.state = ground
	case f.kind == 'P' && b >= 0x40 && picture(f.seq):
		f.out = append(f.out, f.seq...)
		f.state = stream
	case f.kind == 'X', f.kind == '^':
		f.over = true
	}
	return true
}

func (f *Filter) endText(terminator string) {
	if f.over || !utf8.Valid(f.seq) && f.kind != ']' && f.kind != 'k' {
		return
	}
	switch f.kind {
	case ']':
		f.out = f.judgeOSC(f.out, f.seq, terminator)
	case 'k':
		f.out = f.modes.title(f.out)
		f.out = append(f.out, "\x1bk"...)
		f.out = appendClean(f.out, f.seq[2:], maxTitle)
		f.out = append(f.out, terminator...)
	case '_':
		if inlineImage(f.seq[2:]) {
			f.modes.asked = true // it is answered with OK or an error
			f.out = append(append(f.out, f.seq...), terminator...)
		}
	case 'P':
		// Synchronised updates in their older form, without any text.
		if s := string(f.seq[2:]); s == "=1s" || s == "=2s" {
			f.out = append(append(f.out, f.seq...), terminator...)
		}
	}
}

func (f *Filter) stepStream(b byte) bool {
	if f.state == streamEsc {
		f.out = append(f.out, esc, '\\')
		if b == '\\' {
			f.state = ground
			return true
		}
		f.begin()
		return false
	}
	switch {
	case b == esc:
		f.state = streamEsc
	case b == can || b == sub:
		f.out = append(f.out, esc, '\\')
		f.state = ground
		return false
	case b >= 0x20 && b < del, b == '\r', b == '\n':
		f.out = append(f.out, b)
	}
	return true
}
