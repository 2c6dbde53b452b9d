package terminal

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns s as it can stand in a line of Bailey's own: whatever does
// not show as itself is escaped as in Go's strings, which covers control and
// bidirectional characters, invisible and private ones, line separators and
// invalid UTF-8. A backslash is escaped too, so that two names never look the
// same. So are combining marks that have no letter to stand on, and every one
// after the fourth on the same letter. No line end remains.
func Printable(s string) string {
	if simple(s) {
		return s
	}
	return string(appendPrintable(nil, s, ""))
}

// PrintableText is Printable for a text in which the ASCII characters in keep,
// such as line ends and tabs, mean what they are and stay.
func PrintableText(s, keep string) string {
	if simple(s) {
		return s
	}
	return string(appendPrintable(make([]byte, 0, len(s)+len(s)/8), s, keep))
}

// Shorten is Printable for a text that may be long: it shows at most limit
// characters of the result, and says how many bytes of s it left out.
func Shorten(s string, limit int) string {
	head := s
	if most := limit * utf8.UTFMax; len(head) > most {
		head = head[:most] // spares escaping what is cut off anyway
	}
	shown, count := 0, 0
	for len(head) > shown {
		_, n := utf8.DecodeRuneInString(head[shown:])
		w := utf8.RuneCountInString(Printable(head[shown : shown+n]))
		if count+w > limit {
			break
		}
		count += w
		shown += n
	}
	if shown == len(s) {
		return Printable(s)
	}
	return Printable(s[:shown]) + "… (" + strconv.Itoa(len(s)-shown) + " bytes more)"
}

func simple(s string) bool {
	for i := range len(s) {
		if b := s[i]; b < 0x20 || b >= del || b == '\\' {
			return false
		}
	}
	return true
}

const maxMarks = 4

func appendPrintable(out []byte, s, keep string) []byte {
	marks := maxMarks // none may come first
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		mark := unicode.In(r, unicode.Mn, unicode.Me)
		switch {
		case r == utf8.RuneError && n == 1:
			const hex = "0123456789abcdef"
			out = append(out, '\\', 'x', hex[s[0]>>4], hex[s[0]&15])
			marks = maxMarks
		case n == 1 && strings.IndexByte(keep, s[0]) >= 0:
			out = append(out, s[0])
			marks = maxMarks
		case r == '\\':
			out = append(out, `\\`...)
			marks = maxMarks
		case mark && marks < maxMarks:
			marks++
			out = append(out, s[:n]...)
		case mark || !unicode.IsPrint(r):
			q := strconv.QuoteRuneToASCII(r)
			out = append(out, strings.Trim(q, "'")...)
			marks = maxMarks
		default:
			marks = 0
			out = append(out, s[:n]...)
		}
		s = s[n:]
	}
	return out
}
