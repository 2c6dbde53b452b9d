package seatbelt

import "strings"

// patterns makes regular expressions for denials. They match every spelling
// that a file system of macOS takes for the same name, because the name of a
// file that does not exist yet is compared as it was typed: letters in either
// case, the characters beyond ASCII that fold to ASCII letters, and for other
// letters beyond ASCII, whose composed and decomposed forms differ in length,
// anything. Being too wide is safe in a denial, so a pattern that gets too
// long is cut, and matches all that begins with it.
func (r *rules) patterns(paths []string, tail string) (out []string) {
	for _, p := range paths {
		var b strings.Builder
		b.WriteByte('^')
		end := tail + "$"
		for _, piece := range pieces(p) {
			if piece == anything && strings.HasSuffix(b.String(), anything) {
				continue
			}
			if b.Len()+len(piece)+len(end) > maxString {
				end = ""
				break
			}
			b.WriteString(piece)
		}
		out = append(out, `(regex #"`+b.String()+end+`")`)
	}
	return out
}

const anything = "[^/]*"

// folds are the characters that full case folding (Unicode, CaseFolding.txt,
// status C and F) turns into ASCII letters only.
var folds = []struct{ from, to string }{
	{"\u017f", "s"}, {"\u212a", "k"},
	{"\u00df", "ss"}, {"\u1e9e", "ss"},
	{"\ufb00", "ff"}, {"\ufb01", "fi"}, {"\ufb02", "fl"}, {"\ufb03", "ffi"}, {"\ufb04", "ffl"}, {"\ufb05", "st"}, {"\ufb06", "st"},
}

// pieces gives the expressions that, one after the other, match p. None may be
// cut in two.
func pieces(p string) (out []string) {
	runes := []rune(p)
	for i := 0; i < len(runes); {
		// The letters that folded characters could share stay together.
		end := i + 1
		for j := i; j < end; j++ {
			for _, f := range folds {
				if n := len(f.to); matches(runes[j:], f.to) && j+n > end {
					end = j + n
				}
			}
		}
		out = append(out, spell(runes[i:end]))
		i = end
	}
	return out
}

func matches(runes []rune, letters string) bool {
	return len(runes) >= len(letters) && strings.EqualFold(string(runes[:len(letters)]), letters) && ascii(runes[:len(letters)])
}

func ascii(runes []rune) bool {
	for _, c := range runes {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// spell gives an expression for all ways to spell a run.
func spell(run []rune) string {
	if len(run) == 0 {
		return ""
	}
	ways := []string{one(run[0]) + spell(run[1:])}
	for _, f := range folds {
		if matches(run, f.to) {
			ways = append(ways, f.from+spell(run[len(f.to):]))
		}
	}
	if len(ways) == 1 {
		return ways[0]
	}
	return "(" + strings.Join(ways, "|") + ")"
}

// one gives an expression for one character.
func one(c rune) string {
	switch {
	case c >= 0x80:
		return anything
	case c >= 'a' && c <= 'z':
		return "[" + string(c) + string(c-'a'+'A') + "]"
	case c >= 'A' && c <= 'Z':
		return "[" + string(c-'A'+'a') + string(c) + "]"
	case c == '"': // would end the expression
		return "[^/]"
	case strings.ContainsRune(`\.+*?()|[]{}^$`, c):
		return `\` + string(c)
	}
	return string(c)
}
