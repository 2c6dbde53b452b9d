package changes

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	bailey "github.com/bailey-sandbox/bailey"
)

// Selection chooses paths of a set. The zero value chooses all.
type Selection struct {
	// Only, when not empty, chooses what one of its patterns matches.
	// Except takes away again. A pattern is a path relative to its root and
	// chooses that and all below it; with the characters *?[ it is matched as
	// path.Match does, against the path, each folder it is in, and, when the
	// pattern has no slash, the last name alone.
	Only, Except []string
}

// Check reports a pattern that is malformed or could never match, with code
// usage.
func (s Selection) Check() error {
	for _, p := range append(append([]string(nil), s.Only...), s.Except...) {
		if _, err := path.Match(p, ""); err != nil || !filepath.IsLocal(p) {
			return bailey.Errorf(bailey.CodeUsage, "select changes", "use paths relative to the workspace", "%q is no usable pattern", p)
		}
	}
	return nil
}

// Has says whether the path is chosen.
func (s Selection) Has(p string) bool {
	return (len(s.Only) == 0 || anyMatch(s.Only, p)) && !anyMatch(s.Except, p)
}

// Matches reports, with code usage, a pattern to choose by that no change of
// the set fits, and a selection that chooses none: it was meant otherwise.
func (s *Set) Matches(sel Selection) error {
	const what, fix = "select changes", "`bailey changes --summary` names them"
	for _, pattern := range sel.Only {
		if !slices.ContainsFunc(s.Changes, func(c Change) bool { return anyMatch([]string{pattern}, c.Path) }) {
			return bailey.Errorf(bailey.CodeUsage, what, fix, "the run changed nothing that %q matches", pattern)
		}
	}
	if len(sel.Only) > 0 && !slices.ContainsFunc(s.Changes, func(c Change) bool { return sel.Has(c.Path) }) {
		return bailey.Errorf(bailey.CodeUsage, what, fix, "--except takes away all that --only chooses")
	}
	return nil
}

// Selected gives the changes of the set that are chosen, for showing: to apply
// some of them, give Apply the whole set and the selection.
func (s *Set) Selected(sel Selection) *Set {
	part := &Set{Run: s.Run, Roots: s.Roots}
	for i := range s.Changes {
		if sel.Has(s.Changes[i].Path) {
			part.Changes = append(part.Changes, s.Changes[i])
		}
	}
	return part
}

func anyMatch(patterns []string, p string) bool {
	for _, pattern := range patterns {
		pattern = path.Clean(pattern)
		if pattern == "." || p == pattern || strings.HasPrefix(p, pattern+"/") {
			return true
		}
		if !strings.ContainsAny(pattern, "*?[") {
			continue
		}
		bare := !strings.Contains(pattern, "/")
		for at := p; at != "." && at != "/"; at = path.Dir(at) {
			if ok, _ := path.Match(pattern, at); ok {
				return true
			}
			if ok, _ := path.Match(pattern, path.Base(at)); bare && ok {
				return true
			}
		}
	}
	return false
}
