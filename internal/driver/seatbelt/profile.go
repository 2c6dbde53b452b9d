package seatbelt

import (
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey"
)

// Profile says what a command may do. Everything that it does not name is
// denied: other files, the network, other processes, and the system's services
// but for a few.
//
// Paths are absolute; symbolic links in them must have been resolved by the
// caller, since the kernel compares resolved paths. The three links that every
// macOS has at its root (/etc, /tmp and /var) are resolved here.
type Profile struct {
	Read    []string // may be read and executed, with all below
	Write   []string // may be read, executed, and written, with all below
	Protect []string // may not be written, created, moved or replaced, though a Write path contains them
	Deny    []string // may not be reached at all, though a Read or Write path contains them
	TTY     string   // the command's own terminal, such as /dev/ttys004
}

// maxString is the longest string, in bytes, that goes into a profile.
const maxString = 900

// Text generates the profile. The result is the same for the same paths,
// whatever their order. A path that cannot be expressed is an error, never
// left out.
func (p Profile) Text() (string, error) {
	var r rules
	read, write := r.paths(p.Read), r.paths(p.Write)
	protect, deny := r.paths(p.Protect), r.paths(p.Deny)
	if r.err != nil {
		return "", r.err
	}
	r.text.WriteString(base)

	reachable := slices.Concat(read, write)
	slices.Sort(reachable)
	reachable = slices.Compact(reachable)
	r.section("what may be read")
	r.rule("allow", "file-read* file-test-existence process-exec* file-map-executable", r.each("subpath", reachable))
	r.section("the way there: names and kinds of folders, not what is in them")
	r.rule("allow", "file-read-metadata file-test-existence", r.each("literal", ancestors(reachable, "")))
	r.section("what may be written")
	r.rule("allow", "file-write*", r.each("subpath", write))
	// The places themselves stay where they are.
	r.rule("deny", "file-write-unlink", r.each("literal", write))
	if p.TTY != "" {
		r.section("its own terminal")
		r.rule("allow", "file-read* file-write* file-ioctl", r.each("literal", r.paths([]string{p.TTY})))
	}

	// From here on only denials: the last match decides.
	guarded := slices.Concat(protect, deny)
	if len(guarded) > 0 {
		r.section("what may not be written, nor exchanged for something else")
		r.rule("deny", "file-write*", r.patterns(guarded, "(/.*)?"))
		var folders []string
		for _, g := range guarded {
			for _, w := range write {
				if within(g, w) {
					folders = append(folders, ancestors([]string{g}, w)...)
				}
			}
		}
		slices.Sort(folders)
		// A folder above could be moved away, changed there and moved back.
		r.rule("deny", "file-write-unlink file-write-create", r.patterns(slices.Compact(folders), ""))
	}
	if len(deny) > 0 {
		r.section("what does not exist")
		r.rule("deny", "file-read* file-write* process-exec* file-map-executable file-test-existence", r.patterns(deny, "(/.*)?"))
	}
	r.text.WriteString(last)
	return r.text.String(), r.err
}

// rules collects the text of a profile, and the first error.
type rules struct {
	text strings.Builder
	err  error
}

func (r *rules) fail(p, why string) {
	if r.err == nil {
		r.err = bailey.Errorf(bailey.CodeWorkspaceRefused, "describe the sandbox to macOS", "use another folder, or rename it", "the path %q %s", p, why)
	}
}

// paths checks and resolves paths, sorts them and removes doubles.
func (r *rules) paths(list []string) []string {
	out := make([]string, 0, len(list))
	for _, p := range list {
		switch {
		case !path.IsAbs(p):
			r.fail(p, "is not absolute")
		case path.Clean(p) != p:
			r.fail(p, "is not in its shortest form")
		case !utf8.ValidString(p):
			r.fail(p, "is not valid UTF-8")
		case strings.ContainsFunc(p, func(c rune) bool { return c < 0x20 || c == 0x7f }):
			r.fail(p, "has control characters")
		}
		for _, link := range []string{"/etc", "/tmp", "/var"} {
			if within(p, link) {
				p = "/private" + p
			}
		}
		out = append(out, p)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// within reports whether p is the folder or lies below it.
func within(p, folder string) bool {
	return p == folder || folder == "/" || strings.HasPrefix(p, folder+"/")
}

// ancestors gives the folders above the paths, down to and including stop,
// or down to the root.
func ancestors(paths []string, stop string) []string {
	var out []string
	for _, p := range paths {
		for p != "/" && p != stop {
			p = path.Dir(p)
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *rules) section(comment string) { r.text.WriteString("\n; " + comment + "\n") }

func (r *rules) rule(action, operations string, filters []string) {
	if len(filters) == 0 {
		return // without a filter it would match everything
	}
	r.text.WriteString("(" + action + " " + operations)
	for _, f := range filters {
		r.text.WriteString("\n  " + f)
	}
	r.text.WriteString(")\n")
}

// each makes one filter of each path.
func (r *rules) each(filter string, paths []string) (out []string) {
	for _, p := range paths {
		if len(p) > maxString {
			r.fail(p, "is longer than macOS takes in a rule")
		}
		out = append(out, "("+filter+" "+quote(p)+")")
	}
	return out
}

// quote writes a string of the profile language.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
