package terminal

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxTitle   = 256 // characters of a window title
	maxNotice  = 256 // characters of a notification
	maxNotices = 64  // notifications between two keys that the person presses
	maxLink    = 2083
)

// judgeOSC appends to out what may pass of the operating system command seq,
// which starts with ESC ] and has lost its terminator. Only what is named here
// passes: the number space is everybody's, and new numbers tend to be new
// powers.
func (f *Filter) judgeOSC(out, seq []byte, terminator string) []byte {
	body := seq[2:]
	number, rest, _ := bytes.Cut(body, []byte{';'})
	n, err := strconv.Atoi(string(number))
	if err != nil || n < 0 || len(number) > 4 || number[0] == '+' {
		return out
	}
	pass := func() []byte { return append(append(out, seq...), terminator...) }
	switch {
	case n <= 2: // icon name and window title
		out = f.modes.title(out)
		out = append(out, esc, ']')
		out = append(out, number...)
		out = append(out, ';')
		out = appendClean(out, rest, maxTitle)
		return append(out, terminator...)
	case n == 4, n == 5, n >= 10 && n <= 19:
		if !colours(rest) {
			return out
		}
		f.modes.colour(n, rest)
		return pass()
	case n == 104, n == 105, n >= 110 && n <= 119:
		if len(rest) > 0 && !every(rest, func(b byte) bool { return digit(b) || b == ';' }) {
			return out
		}
		return pass()
	case n == 8:
		if !link(rest) {
			return out
		}
		f.modes.link = !bytes.HasSuffix(rest, []byte{';'})
		return pass()
	case n == 9:
		return f.judgeNine(out, seq, rest, terminator)
	case n == 133: // prompt marks, in the form that carries no text
		if !promptMark(rest) {
			return out
		}
		return pass()
	case n == 777:
		if text, ok := bytes.CutPrefix(rest, []byte("notify;")); ok {
			return f.notify(out, "\x1b]777;notify;", text, terminator)
		}
	}
	return out
}

// judgeNine handles OSC 9: a progress bar, or a notification. ConEmu gave the
// number sub-commands that start programs; they begin with a digit.
func (f *Filter) judgeNine(out, seq, rest []byte, terminator string) []byte {
	if p, ok := bytes.CutPrefix(rest, []byte("4;")); ok {
		if !every(p, func(b byte) bool { return digit(b) || b == ';' }) {
			return out
		}
		f.modes.progress = p[0] != '0'
		return append(append(out, seq...), terminator...)
	}
	head, _, _ := bytes.Cut(rest, []byte{';'})
	if every(bytes.TrimSpace(head), digit) {
		return out
	}
	return f.notify(out, "\x1b]9;", rest, terminator)
}

func (f *Filter) notify(out []byte, head string, text []byte, terminator string) []byte {
	if f.notices.Load() >= maxNotices {
		return out
	}
	f.notices.Add(1)
	out = append(out, head...)
	out = appendClean(out, text, maxNotice)
	return append(out, terminator...)
}

// appendClean appends s without control, format and invalid characters, up to
// limit characters.
func appendClean(out, s []byte, limit int) []byte {
	for len(s) > 0 && limit > 0 {
		r, n := utf8.DecodeRune(s)
		if unicode.IsPrint(r) && !(r == utf8.RuneError && n == 1) {
			out = append(out, s[:n]...)
			limit--
		}
		s = s[n:]
	}
	return out
}

// colours reports whether s is made of colour numbers, colour specifications
// and question marks, and of nothing else. A terminal answers such a question
// with numbers.
func colours(s []byte) bool {
	return every(s, func(b byte) bool {
		return digit(b) || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || strings.IndexByte(";?:#/., %-", b) >= 0
	})
}

// link judges the parameters and the address of a hyperlink (OSC 8). An empty
// address ends a link.
func link(s []byte) bool {
	params, address, ok := bytes.Cut(s, []byte{';'})
	if !ok || len(s) > maxLink || !utf8.Valid(s) {
		return false
	}
	for _, r := range string(s) {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	if len(address) == 0 {
		return len(params) == 0 || bytes.HasPrefix(params, []byte("id="))
	}
	scheme, after, ok := bytes.Cut(address, []byte("://"))
	return ok && len(after) > 0 && (bytes.EqualFold(scheme, []byte("http")) || bytes.EqualFold(scheme, []byte("https")))
}

// promptMark accepts A, B, C, D and D with an exit status: where a shell's
// prompt, input and output begin and end.
func promptMark(s []byte) bool {
	if len(s) == 1 {
		return s[0] >= 'A' && s[0] <= 'D'
	}
	return len(s) <= 5 && bytes.HasPrefix(s, []byte("D;")) && every(s[2:], digit)
}

// linuxPalette reports whether an OSC is one of the two that the Linux console
// ends without a terminator: set a colour, reset the palette. Both are left
// out; taking them for ordinary strings would swallow the text that follows.
func linuxPalette(seq []byte) bool {
	if len(seq) == 3 {
		return seq[2] == 'R'
	}
	return len(seq) == 10 && seq[2] == 'P' && every(seq[3:], func(b byte) bool {
		return digit(b) || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F'
	})
}

// picture reports whether seq opens sixel graphics: DCS, numbers, q.
func picture(seq []byte) bool {
	return seq[len(seq)-1] == 'q' && (len(seq) == 3 || every(seq[2:len(seq)-1], func(b byte) bool { return digit(b) || b == ';' }))
}

// inlineImage reports whether an APC string is a command of kitty's graphics
// protocol whose data, if any, is in the string itself. The other ways of
// transmission (t=f, t, s) make the terminal open a file or a shared memory
// object of the host, and delete it.
func inlineImage(s []byte) bool {
	if len(s) == 0 || s[0] != 'G' {
		return false
	}
	control, data, _ := bytes.Cut(s[1:], []byte{';'})
	if len(control) > 0 {
		for pair := range bytes.SplitSeq(control, []byte{','}) {
			if len(pair) < 3 || pair[1] != '=' || !letter(pair[0]) {
				return false
			}
			value := pair[2:]
			if pair[0] == 't' && string(value) != "d" {
				return false
			}
			number := every(bytes.TrimPrefix(value, []byte{'-'}), digit) && len(value) <= 11
			if !number && !(len(value) == 1 && letter(value[0])) {
				return false
			}
		}
	}
	return len(data) == 0 || every(data, func(b byte) bool {
		return letter(b) || digit(b) || b == '+' || b == '/' || b == '='
	})
}

func digit(b byte) bool { return b >= '0' && b <= '9' }

func letter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// every reports whether s is not empty and ok holds for each of its bytes.
func every(s []byte, ok func(byte) bool) bool {
	for _, b := range s {
		if !ok(b) {
			return false
		}
	}
	return len(s) > 0
}
