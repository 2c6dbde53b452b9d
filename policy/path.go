package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxPath bounds a path, in bytes; servers refuse longer ones anyway.
const maxPath = 16 << 10

// CanonicalPath gives the one form of a URL's escaped path by which rules
// match and which is sent on (RFC 3986, section 6.2.2): dot segments are
// resolved, repeated slashes are one, escapes are upper case and only where
// they are needed. "" is "/".
//
// What servers read in more than one way is an error: dot segments that leave
// the root, backslashes, control characters, escapes of escapes, bytes that
// are no UTF-8, "..;". An encoded slash stays as %2F where both sides of it are
// names (npm and GitLab need it); no wildcard of a rule that allows matches it,
// and a rule that denies matches either reading.
func CanonicalPath(escaped string) (string, error) {
	switch {
	case escaped == "":
		return "/", nil
	case escaped[0] != '/':
		return "", errors.New("the path does not begin with a slash")
	case len(escaped) > maxPath:
		return "", fmt.Errorf("the path is longer than %d bytes", maxPath)
	}
	if plainPath(escaped) {
		return escaped, nil
	}
	text, err := normalEscapes(escaped)
	if err != nil {
		return "", err
	}
	var out []string
	segments := strings.Split(text[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "":
			if last {
				out = append(out, "")
			}
			continue
		case "..":
			if len(out) == 0 {
				return "", errors.New("the path leaves the root")
			}
			out = out[:len(out)-1]
			if last {
				out = append(out, "")
			}
			continue
		}
		for part := range strings.SplitSeq(s, "%2F") {
			if name, _, _ := strings.Cut(part, ";"); name == "" || name == "." || name == ".." {
				return "", fmt.Errorf("servers disagree about what the segment %q is", s)
			}
		}
		out = append(out, s)
	}
	return "/" + strings.Join(out, "/"), nil
}

// plainPath tells that a path is canonical as it stands, the usual case.
func plainPath(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '/':
			if i > 0 && s[i-1] == '/' {
				return false
			}
		case c == '.':
			if s[i-1] == '/' {
				return false
			}
		case c == ';' || !pathByte(c):
			return false
		}
	}
	return true
}

// pathByte tells what a path has unescaped: pchar of RFC 3986.
func pathByte(c byte) bool {
	return unreserved(c) || strings.IndexByte("!$&'()*+,;=:@/", c) >= 0
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// normalEscapes gives every byte its one spelling.
func normalEscapes(s string) (string, error) {
	var b strings.Builder
	decoded := make([]byte, 0, len(s)) // to look at as text
	for i := 0; i < len(s); i++ {
		c, escaped := s[i], false
		if c == '%' {
			hi, lo := -1, -1
			if i+2 < len(s) {
				hi, lo = hexValue(s[i+1]), hexValue(s[i+2])
			}
			if hi < 0 || lo < 0 {
				return "", errors.New("the path has a % that begins no escape")
			}
			c, escaped = byte(hi<<4|lo), true
			i += 2
		}
		decoded = append(decoded, c)
		switch {
		case c < ' ' || c == 0x7f:
			return "", errors.New("the path has a control character in it")
		case c == '\\':
			return "", errors.New("the path has a backslash in it")
		case !escaped && (c == ' ' || c == '?' || c == '#'):
			return "", fmt.Errorf("the path has %q in it unescaped", c)
		case unreserved(c) || !escaped && pathByte(c):
			b.WriteByte(c)
		case escaped && c == ';':
			return "", errors.New("the path has an escaped semicolon in it")
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if !utf8.Valid(decoded) {
		return "", errors.New("the path is not UTF-8")
	}
	out := b.String()
	for rest := out; ; {
		_, after, found := strings.Cut(rest, "%25")
		if !found {
			return out, nil
		}
		if len(after) >= 2 && hexValue(after[0]) >= 0 && hexValue(after[1]) >= 0 {
			return "", errors.New("the path has an escape of an escape in it")
		}
		rest = after
	}
}

func hexValue(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
