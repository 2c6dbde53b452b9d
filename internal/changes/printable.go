package changes

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable gives a name as it may be shown on a terminal: control
// characters, bytes that are not UTF-8, characters that cannot be seen or
// that turn the direction of writing, and the backslash are escaped as in a Go
// string. Two different names never look the same because of escaping.
func Printable(name string) string { return escape(name, "") }

// escape escapes all of s that must not reach a terminal, but the characters
// in keep.
func escape(s, keep string) string {
	plain := true
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' || s[i] == '\\' {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n <= 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case n == 1 && strings.IndexByte(keep, s[0]) >= 0:
			b.WriteByte(s[0])
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x80 && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case !unicode.IsPrint(r):
			if r > 0xffff {
				fmt.Fprintf(&b, `\U%08x`, r)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}
