package terminal

import (
	"bytes"
	"slices"
	"strconv"
)

// judgeEscape appends to out what may pass of seq, an escape sequence that is
// neither a control sequence nor a string.
func (f *Filter) judgeEscape(out, seq []byte) []byte {
	final := seq[len(seq)-1]
	if len(seq) == 2 {
		switch final {
		case 'G': // rxvt answers ESC G Q with a line end (CVE-2021-33477)
			return out
		case 'c':
			f.modes.reset()
		case 'Z':
			f.modes.asked = true
		case '=':
			f.modes.keypad = true
		case '>':
			f.modes.keypad = false
		case 'n', 'o', '|', '}', '~':
			f.modes.charset = true
		}
		return append(out, seq...)
	}
	switch seq[1] {
	case '%': // other coding systems, in which other bytes open sequences
		if string(seq) != "\x1b%G" {
			return out
		}
	case ' ': // answers with 8-bit controls; conformance levels
		if string(seq) != "\x1b F" {
			return out
		}
	case '(', ')', '*', '+', '-', '.', '/', '$':
		f.modes.charset = string(seq) != "\x1b(B"
	}
	return append(out, seq...)
}

// csi is a control sequence taken apart: ESC [ private params inter final.
type csi struct {
	private byte
	params  []byte
	inter   []byte
	final   byte
}

// parseCSI takes seq apart, and reports false for what is no control sequence
// by the grammar of ECMA-48 with at most one private marker.
func parseCSI(seq []byte) (c csi, ok bool) {
	body, final := seq[2:len(seq)-1], seq[len(seq)-1]
	c.final = final
	if len(body) > 0 && body[0] >= '<' && body[0] <= '?' {
		c.private, body = body[0], body[1:]
	}
	i := 0
	for i < len(body) && body[i] >= '0' && body[i] <= ';' {
		i++
	}
	c.params, c.inter = body[:i], body[i:]
	for _, b := range c.inter {
		if b < 0x20 || b > 0x2f {
			return c, false
		}
	}
	return c, true
}

// number gives parameter i, or missing where it is absent, empty or larger
// than any number with a meaning.
func (c csi) number(i, missing int) int {
	for p := range bytes.SplitSeq(c.params, []byte{';'}) {
		if i == 0 {
			if n, err := strconv.Atoi(string(p)); err == nil && n < 1<<16 {
				return n
			}
			return missing
		}
		i--
	}
	return missing
}

// judgeControl appends to out what may pass of the control sequence seq.
func (f *Filter) judgeControl(out, seq []byte) []byte {
	c, ok := parseCSI(seq)
	if !ok {
		return out
	}
	pass := append(out, seq...)
	if len(c.inter) > 0 {
		return f.judgeIntermediate(out, pass, c)
	}
	switch c.final {
	case 'i': // media copy: prints the screen, or sends all that follows to a printer
		return out
	case '[', ']', 'y': // the Linux console's function keys and its own settings; self tests
		return out
	case 't':
		return f.judgeWindow(out, pass, c)
	case 'T':
		if c.private == '>' { // how titles are encoded
			return out
		}
	case 'n':
		if !harmlessReport(c) {
			return out
		}
		f.modes.asked = f.modes.asked || c.private != '>'
	case 'c', 'x':
		f.modes.asked = true
	case 'q':
		f.modes.asked = f.modes.asked || c.private == '>'
	case 'S':
		f.modes.asked = f.modes.asked || c.private == '?'
	case 'h', 'l':
		return f.judgeMode(out, pass, c)
	case 's', 'r':
		if c.private == '?' { // save and restore modes
			return f.judgeMode(out, pass, c)
		}
		if c.private == 0 && c.final == 'r' {
			f.modes.region = len(c.params) > 0
		}
	case 'm':
		f.modes.graphics(c)
	case 'u':
		return f.modes.keyboard(out, pass, c)
	}
	return pass
}

// judgeIntermediate judges control sequences with intermediate bytes. pass is
// out with the sequence.
func (f *Filter) judgeIntermediate(out, pass []byte, c csi) []byte {
	switch string(c.inter) + string(c.final) {
	case " q":
		f.modes.cursor = c.number(0, 0)
	case "$p": // DECRQM, answered with numbers
		f.modes.asked = true
	case "\"p", // DECSCL: conformance level, 8-bit answers
		"*y",             // DECRQCRA: reads the screen back, checksum by checksum
		"#|",             // XTREPORTSGR: likewise
		"$w", "$u", "&u", // reports of presentation and terminal state
		"*z",       // DECINVM: runs a macro
		"$|", "*|", // columns per page, lines per screen: resize
		"$}", "$~": // text into the status line
		return out
	}
	if bytes.IndexByte(c.inter, ',') >= 0 { // DECPS, key and colour assignment
		return out
	}
	return pass
}

// judgeWindow judges CSI t (XTWINOPS). Sizes may be asked for; titles may be
// saved, and restored as often as they were saved.
func (f *Filter) judgeWindow(out, pass []byte, c csi) []byte {
	if c.private != 0 {
		return out
	}
	switch c.number(0, 0) {
	case 14, 16, 18, 19:
		f.modes.asked = true
		return pass
	case 22:
		if f.modes.saved == maxSaved {
			return out
		}
		seq := bytes.Clone(pass[len(out):]) // title may write over pass
		out = f.modes.title(out)
		f.modes.saved++
		return append(out, seq...)
	case 23:
		if f.modes.saved == 0 {
			return out
		}
		f.modes.saved--
		return pass
	}
	return out
}

// harmlessReport tells whether a CSI n asks only for numbers: status, cursor
// position, and what DEC and xterm define beside them. Others have answered
// with the name of the display or with settable text.
func harmlessReport(c csi) bool {
	switch c.private {
	case '>': // switches modifyOtherKeys and the like off
		return true
	case 0:
		n := c.number(0, 0)
		return (n == 5 || n == 6) && bytes.IndexByte(c.params, ';') < 0
	case '?':
		return slices.Contains([]int{6, 15, 25, 26, 53, 55, 56, 75, 85, 996}, c.number(0, 0))
	}
	return false
}

// judgeMode leaves the dangerous modes out of CSI h, l, s and r, and notes
// the others.
func (f *Filter) judgeMode(out, pass []byte, c csi) []byte {
	var kept [][]byte
	removed := false
	for p := range bytes.SplitSeq(c.params, []byte{';'}) {
		n, err := strconv.Atoi(string(p))
		if len(p) > 0 && (err != nil || n >= 1<<16) { // sub-parameters, or a number that may wrap
			return out
		}
		if dangerousMode(c, n) {
			removed = true
			continue
		}
		kept = append(kept, p)
		switch c.final {
		case 'h', 'l':
			f.modes.set(c.private, n, c.final == 'h')
		case 'r':
			f.modes.restored(n)
		}
	}
	switch {
	case !removed:
		return pass
	case len(kept) == 0:
		return out
	}
	list := bytes.Join(kept, []byte{';'}) // a copy: pass may share memory with out
	out = append(out, esc, '[')
	if c.private != 0 {
		out = append(out, c.private)
	}
	out = append(out, list...)
	return append(out, c.final)
}

// dangerousMode names the modes that no program of a sandbox may change.
func dangerousMode(c csi, mode int) bool {
	if c.private == 0 {
		return mode == 2 && c.final == 'h' // KAM locks the keyboard
	}
	if c.private != '?' {
		return false
	}
	switch mode {
	case 2, // VT52: other sequences, among them one that prints
		3, 40, 95, // 132 columns, and the permission for it
		18, 19, // printing
		38,   // Tektronix
		46,   // logging to a file
		1001: // highlight tracking: the terminal waits for the program
		return true
	}
	return false
}
