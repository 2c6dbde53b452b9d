package terminal

import (
	"bytes"
	"slices"
	"strconv"
)

const (
	maxSaved = 8 // window titles that a program may have on the terminal's stack
	maxKeys  = 8 // entries that it may have on kitty's keyboard stacks
)

// tracked are the private modes that are brought back, in this order, and
// whether they are on in a terminal that nobody touched. The ones that select
// a screen come last: what is before them belongs to the screen that is left.
var tracked = []struct {
	mode int
	on   bool
}{
	{2026, false},                               // synchronised update
	{1, false},                                  // application cursor keys
	{5, false},                                  // reverse video
	{6, false},                                  // origin
	{7, true},                                   // autowrap
	{9, false},                                  // mouse, X10
	{25, true},                                  // cursor
	{45, false},                                 // reverse wrap
	{66, false},                                 // application keypad
	{69, false},                                 // left and right margins
	{80, false},                                 // sixel display mode
	{1000, false}, {1002, false}, {1003, false}, // mouse
	{1004, false},                                              // focus reports
	{1005, false}, {1006, false}, {1015, false}, {1016, false}, // how mouse reports are written
	{2004, false},                             // bracketed paste
	{2031, false},                             // reports of the colour scheme
	{2048, false},                             // reports of the size
	{9001, false},                             // Win32 input
	{47, false}, {1047, false}, {1049, false}, // the alternate screen
}

const firstScreen = 3 // the last so many of tracked select a screen

// modes is what a program has changed in a terminal. Its size is fixed.
type modes struct {
	changed   [32]bool // parallel to tracked
	insert    bool     // IRM
	newline   bool     // LNM
	keypad    bool     // ESC =
	charset   bool     // something other than US-ASCII was designated or shifted in
	region    bool     // a scroll region is set
	rendition bool     // SGR is not at its default
	cursor    int      // DECSCUSR; 0 is the default
	link      bool     // inside a hyperlink
	progress  bool     // a progress bar is shown
	modify    bool     // modifyOtherKeys or a relative is set
	touched   bool     // the person's title is on the terminal's stack
	saved     int      // titles that the program pushed and did not pop
	palette   bool     // OSC 4
	special   bool     // OSC 5
	dynamic   [10]bool // OSC 10 … 19
	keys      [2][]int // flags pushed on kitty's stacks: main, alternate screen
	keySet    [2]bool  // flags set without a push
	asked     bool     // an answer may be under way
}

func (m *modes) reset() {
	*m = modes{touched: m.touched, saved: m.saved, palette: m.palette, special: m.special, dynamic: m.dynamic, progress: m.progress, asked: m.asked}
}

func index(mode int) int {
	for i, t := range tracked {
		if t.mode == mode {
			return i
		}
	}
	return -1
}

func (m *modes) set(private byte, mode int, on bool) {
	if private == 0 {
		switch mode {
		case 4:
			m.insert = on
		case 20:
			m.newline = on
		}
		return
	}
	if private != '?' {
		return
	}
	if i := index(mode); i >= 0 {
		m.changed[i] = on != tracked[i].on
	}
}

// restored notes that the terminal gave a mode the value it once saved, which
// may be any.
func (m *modes) restored(mode int) {
	if i := index(mode); i >= 0 {
		m.changed[i] = true
	}
}

// reporting tells whether the terminal sends reports without being asked.
func (m *modes) reporting() bool {
	for _, mode := range []int{9, 1000, 1002, 1003, 1004, 2031, 2048} {
		if m.changed[index(mode)] {
			return true
		}
	}
	return false
}

func (m *modes) screen() int {
	if slices.Contains(m.changed[len(tracked)-firstScreen:len(tracked)], true) {
		return 1
	}
	return 0
}

// graphics notes whether CSI m leaves the rendition at its default.
func (m *modes) graphics(c csi) {
	switch c.private {
	case 0:
		// Only what is all zeros is surely a reset: a last 0 may also be the
		// end of a colour, as in 38;5;0.
		m.rendition = len(bytes.Trim(c.params, "0;")) > 0
	case '>':
		m.modify = true
	case '?':
		m.asked = true
	}
}

// colour notes which colours OSC n sets; a question mark only asks.
func (m *modes) colour(n int, specs []byte) {
	for i, spec := range bytes.Split(specs, []byte{';'}) {
		switch {
		case string(spec) == "?":
			m.asked = true
		case n >= 10: // the colours that follow, one after the other
			if n-10+i < len(m.dynamic) {
				m.dynamic[n-10+i] = true
			}
		case i%2 == 1 && n == 4: // pairs of index and colour
			m.palette = true
		case i%2 == 1:
			m.special = true
		}
	}
}

// title puts the person's title on the terminal's stack before the program
// changes it for the first time.
func (m *modes) title(out []byte) []byte {
	if m.touched {
		return out
	}
	m.touched = true
	return append(out, "\x1b[22;0t"...)
}

// keyboard judges CSI u: restore the cursor, and kitty's keyboard protocol. A
// program may pop what it pushed, and not what the person's shell had pushed.
func (m *modes) keyboard(out, pass []byte, c csi) []byte {
	s := m.screen()
	switch c.private {
	case '?':
		m.asked = true
	case '=':
		m.keySet[s] = true
	case '>':
		if len(m.keys[s]) == maxKeys {
			return out
		}
		m.keys[s] = append(m.keys[s], c.number(0, 0))
	case '<':
		n := max(c.number(0, 1), 1)
		have := len(m.keys[s])
		if n <= have {
			m.keys[s] = m.keys[s][:have-n]
			return pass
		}
		m.keys[s] = m.keys[s][:0]
		return appendPop(out, have)
	}
	return pass
}

func appendPop(out []byte, n int) []byte {
	if n == 0 {
		return out
	}
	return appendCSI(out, '<', n, "u")
}

func appendCSI(out []byte, private byte, n int, rest string) []byte {
	out = append(out, esc, '[')
	if private != 0 {
		out = append(out, private)
	}
	return append(strconv.AppendInt(out, int64(n), 10), rest...)
}

func letterFor(on bool) string {
	if on {
		return "h"
	}
	return "l"
}

func (m *modes) undoKeys(out []byte, screen int) []byte {
	out = appendPop(out, len(m.keys[screen]))
	if m.keySet[screen] {
		out = append(out, "\x1b[=0u"...)
	}
	return out
}

// undo appends what brings the terminal back. The state is kept for redo, but
// for titles and colours, which a program that goes on sets again itself.
func (m *modes) undo(out []byte) []byte {
	if m.link {
		out = append(out, "\x1b]8;;\x1b\\"...)
	}
	if m.screen() == 1 {
		out = m.undoKeys(out, 1)
	}
	if m.region { // CSI r moves the cursor
		out = append(out, "\x1b7\x1b[r\x1b8"...)
	}
	for i, t := range tracked {
		if m.changed[i] {
			out = appendCSI(out, '?', t.mode, letterFor(t.on))
		}
	}
	out = m.undoKeys(out, 0)
	for _, s := range []struct {
		on   bool
		undo string
	}{
		{m.insert, "\x1b[4l"},
		{m.newline, "\x1b[20l"},
		{m.keypad, "\x1b>"},
		{m.charset, "\x1b(B\x0f"},
		{m.rendition, "\x1b[0m"},
		{m.modify, "\x1b[>4m"},
		{m.cursor != 0, "\x1b[0 q"},
		{m.progress, "\x1b]9;4;0\x1b\\"},
		{m.palette, "\x1b]104\x1b\\"},
		{m.special, "\x1b]105\x1b\\"},
	} {
		if s.on {
			out = append(out, s.undo...)
		}
	}
	for i, on := range m.dynamic {
		if on {
			out = append(out, esc, ']')
			out = strconv.AppendInt(out, int64(110+i), 10)
			out = append(out, esc, '\\')
		}
	}
	if m.touched {
		// A terminal without a stack of titles is left with an empty one.
		out = append(out, "\x1b]0;\x1b\\"...)
		for range m.saved + 1 {
			out = append(out, "\x1b[23;0t"...)
		}
	}
	m.touched, m.saved, m.progress, m.link = false, 0, false, false
	m.palette, m.special, m.dynamic = false, false, [10]bool{}
	return out
}

// redo appends what undo took away.
func (m *modes) redo(out []byte) []byte {
	out = m.redoKeys(out, 0)
	for i := len(tracked) - 1; i >= 0; i-- { // the screen first
		if m.changed[i] {
			out = appendCSI(out, '?', tracked[i].mode, letterFor(!tracked[i].on))
		}
	}
	if m.screen() == 1 {
		out = m.redoKeys(out, 1)
	}
	if m.insert {
		out = append(out, "\x1b[4h"...)
	}
	if m.newline {
		out = append(out, "\x1b[20h"...)
	}
	if m.keypad {
		out = append(out, "\x1b="...)
	}
	if m.cursor != 0 {
		out = appendCSI(out, 0, m.cursor, " q")
	}
	return out
}

func (m *modes) redoKeys(out []byte, screen int) []byte {
	for _, flags := range m.keys[screen] {
		out = appendCSI(out, '>', flags, "u")
	}
	return out
}
