package policy

import (
	"errors"
	"fmt"
	"strings"
)

// pathPattern is a path whose segments may be wildcards:
//
//   - one segment that is not empty
//     **         one or more segments, of which the last may be empty
//     a*b        one segment that begins and ends so
//     {class}    one segment of a kind of word, see classes
//     {class...} one or more of them
//
// No wildcard stands for an encoded slash; only a pattern that spells %2F
// matches one.
type pathPattern struct {
	text     string
	segments []segment
	prefix   string // how every path that it matches begins
}

// maxSegments is what fits into the set of places that matches keeps.
const maxSegments = 60

type segment struct {
	literal string
	glob    []string // the pieces between the stars, nil when there is none
	kind    string   // of word, "" when there is none
	class   func(string) bool
	many    bool
}

func parsePathPattern(s string) (pathPattern, error) {
	var p pathPattern
	if !strings.HasPrefix(s, "/") {
		return p, fmt.Errorf("the path %q does not begin with a slash", s)
	}
	if strings.Count(s, "/") > maxSegments {
		return p, fmt.Errorf("the path %q has more than %d segments", s, maxSegments)
	}
	plain := true
	for i, text := range strings.Split(s[1:], "/") {
		seg, err := parseSegment(text)
		if err != nil {
			return p, fmt.Errorf("the path %q: %w", s, err)
		}
		if text == "" && i != strings.Count(s, "/")-1 {
			return p, fmt.Errorf("the path %q has an empty segment, which no canonical path has", s)
		}
		p.segments = append(p.segments, seg)
		p.text += "/" + seg.String()
		if plain {
			if seg.glob == nil && seg.class == nil && !seg.many {
				p.prefix += "/" + seg.literal
			} else {
				plain = false
				p.prefix += "/"
				if seg.glob != nil {
					p.prefix += seg.glob[0]
				}
			}
		}
	}
	return p, nil
}

func parseSegment(s string) (segment, error) {
	if s == "**" {
		return segment{many: true}, nil
	}
	if name, ok := strings.CutPrefix(s, "{"); ok {
		name, closed := strings.CutSuffix(name, "}")
		name, many := strings.CutSuffix(name, "...")
		class := classes[name]
		if !closed || class == nil {
			return segment{}, fmt.Errorf("there is no kind of word %s", s)
		}
		return segment{kind: name, class: class, many: many}, nil
	}
	if strings.ContainsAny(s, "{}") {
		return segment{}, errors.New("braces stand around a whole segment")
	}
	if strings.Contains(s, "**") {
		return segment{}, errors.New("** is a whole segment")
	}
	if !strings.Contains(s, "*") {
		c, err := CanonicalPath("/" + s)
		if err == nil && (strings.Contains(c[1:], "/") || c == "/" && s != "") {
			err = errors.New("no canonical path has dot segments")
		}
		if err != nil {
			return segment{}, err
		}
		return segment{literal: c[1:]}, nil
	}
	pieces := strings.Split(s, "*")
	for i, piece := range pieces {
		c, err := CanonicalPath("/x" + piece + "x")
		if err != nil {
			return segment{}, err
		}
		pieces[i] = c[2 : len(c)-1]
	}
	return segment{glob: pieces}, nil
}

func (s segment) String() string {
	switch {
	case s.kind != "" && s.many:
		return "{" + s.kind + "...}"
	case s.kind != "":
		return "{" + s.kind + "}"
	case s.many:
		return "**"
	case s.glob != nil:
		return strings.Join(s.glob, "*")
	}
	return s.literal
}

func (s segment) matches(text string) bool {
	switch {
	case s.class != nil:
		return s.class(text)
	case s.glob != nil:
		return globMatches(s.glob, text)
	case s.many:
		return !strings.Contains(text, "%2F")
	}
	return s.literal == text
}

// globMatches matches the pieces between stars, leftmost first, which finds a
// match if there is one.
func globMatches(pieces []string, text string) bool {
	first, last := pieces[0], pieces[len(pieces)-1]
	if text == "" || len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for i, piece := range pieces[1:] {
		if i == len(pieces)-2 {
			return !strings.Contains(text, "%2F")
		}
		before, after, found := strings.Cut(text, piece)
		if !found || strings.Contains(before, "%2F") {
			return false
		}
		text = after
	}
	return false
}

// matches tells whether a canonical path fits. It walks the path once with the
// set of all places in the pattern that it may be at, so that no pattern and no
// path make it slow.
func (p *pathPattern) matches(path string) bool {
	if !strings.HasPrefix(path, p.prefix) {
		return false
	}
	at, rest, more := uint64(1), path[1:], true
	for more && at != 0 {
		var text string
		text, rest, more = strings.Cut(rest, "/")
		var next uint64
		for i := range p.segments {
			if at&(1<<i) == 0 || !p.segments[i].matches(text) {
				continue
			}
			next |= 1 << (i + 1)
			if p.segments[i].many {
				next |= 1 << i
			}
		}
		at = next
	}
	return at&(1<<len(p.segments)) != 0
}
