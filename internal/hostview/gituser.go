package hostview

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxGitConfig bounds what is read of the caller's settings of git, in bytes.
const maxGitConfig = 1 << 20

// GitUser gives the name and the email that git writes into the caller's
// commits, by the files that git-config(1) describes under "FILES": those in
// config, which is $XDG_CONFIG_HOME or empty, and then those in home, which win.
// Nothing else of these files is looked at: no include, no command, and no
// helper. What is not there, or not to be read at once, is empty.
func GitUser(home, config string) (name, email string) {
	if !filepath.IsAbs(home) {
		return "", ""
	}
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	for _, p := range []string{filepath.Join(config, "git", "config"), filepath.Join(home, ".gitconfig")} {
		n, e := gitUser(readPlain(p, maxGitConfig))
		if n != "" {
			name = n
		}
		if e != "" {
			email = e
		}
	}
	return name, email
}

// readPlain gives the text of a regular file of at most most bytes; "" for
// anything else. It never waits, as for a pipe's other end.
func readPlain(p string, most int64) string {
	f, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > most {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	return string(b)
}

// gitUser reads user.name and user.email of a file in the form that
// git-config(1) describes under "Syntax" and "Values". The last of each counts.
// A value that is malformed, or holds control characters, is none.
func gitUser(text string) (name, email string) {
	s := gitScanner{rest: strings.TrimPrefix(text, "\ufeff")}
	inUser := false
	for s.skipSpace(); s.rest != ""; s.skipSpace() {
		switch c := s.rest[0]; {
		case c == '#' || c == ';':
			s.line()
		case c == '[':
			// A header ends at its bracket: a setting may stand behind it. A
			// subsection, [user "x"], is another section.
			head, rest, ok := strings.Cut(s.rest[1:], "]")
			if i := strings.IndexByte(head, '"'); i >= 0 {
				inUser = false
				s.line() // what is quoted may hold a bracket
				continue
			}
			if !ok || strings.ContainsRune(head, '\n') {
				return "", ""
			}
			inUser, s.rest = strings.EqualFold(head, "user"), rest
		default:
			key, value, ok := s.setting()
			switch {
			case !inUser || !ok:
			case strings.EqualFold(key, "name"):
				name = value
			case strings.EqualFold(key, "email"):
				email = value
			}
		}
	}
	return name, email
}

type gitScanner struct{ rest string }

func (s *gitScanner) skipSpace() { s.rest = strings.TrimLeft(s.rest, " \t\r\n\v\f") }

// line takes the rest of the line.
func (s *gitScanner) line() { _, s.rest, _ = strings.Cut(s.rest, "\n") }

// setting takes a key and its value. ok is false for a key without one.
func (s *gitScanner) setting() (key, value string, ok bool) {
	end := strings.IndexAny(s.rest, "=\n")
	if end < 0 || s.rest[end] == '\n' || strings.ContainsAny(s.rest[:end], "#;") {
		s.line()
		return "", "", false
	}
	key, s.rest = strings.TrimSpace(s.rest[:end]), s.rest[end+1:]
	value, ok = s.value()
	return key, value, ok
}

// value takes a value up to its line's end: spaces around it do not count,
// those in quotes do, a backslash escapes a character or the line's end.
func (s *gitScanner) value() (string, bool) {
	var out strings.Builder
	quoted, ok := false, true
	kept := 0 // the length without spaces that may turn out to be the last
	s.rest = strings.TrimLeft(s.rest, " \t")
	for s.rest != "" {
		c := s.rest[0]
		s.rest = s.rest[1:]
		switch {
		case c == '\n':
			return out.String()[:kept], ok && !quoted
		case c == '\r' && strings.HasPrefix(s.rest, "\n"):
			continue
		case !quoted && (c == '#' || c == ';'):
			s.line()
			return out.String()[:kept], ok
		case c == '"':
			quoted = !quoted
			kept = out.Len()
			continue
		case c == '\\':
			s.rest = strings.TrimPrefix(s.rest, "\r")
			if s.rest == "" {
				return "", false
			}
			c, s.rest = s.rest[0], s.rest[1:]
			if c == '\n' {
				continue
			}
			if c != '\\' && c != '"' {
				ok = false // \n, \t and \b are no part of a name
			}
		case c < ' ' && c != '\t' || c == 0x7f:
			ok = false
		}
		out.WriteByte(c)
		if quoted || c != ' ' && c != '\t' {
			kept = out.Len()
		}
	}
	return out.String()[:kept], ok && !quoted
}
