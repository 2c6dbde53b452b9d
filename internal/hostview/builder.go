package hostview

import (
	"io/fs"
	"path"
	"strings"
)

// builder collects a view.
type builder struct {
	in   Input
	t    *tree
	deny denyList
	home string // the home's real place, inside and outside
	// homeValue and shell are HOME and SHELL inside.
	homeValue, shell string
	ws               string // the workspace's real place
	wants            map[string]Entry
	notes            []Note
	noted            map[Note]bool
	roots            map[string][]string // rootsOf, by toolchain
	// rootLinks are the links that led to a root.
	rootLinks map[string][]link
	shown     map[string]bool     // toolchains that were shown, by name and root
	lists     map[string][]string // names in folders that patterns were matched in
	host      map[string]string   // the caller's environment
}

func (b *builder) note(subject, text string) {
	n := Note{subject, text}
	if !b.noted[n] {
		b.noted[n] = true
		b.notes = append(b.notes, n)
	}
}

// put adds e unless its place is taken.
func (b *builder) put(e Entry) {
	if _, taken := b.wants[e.Target]; !taken {
		b.wants[e.Target] = e
	}
}

// visible says whether the real host path p is shown at its own place, by the
// workspace or by a bind above it that no nearer entry replaces.
func (b *builder) visible(p string) bool {
	if within(p, b.ws) {
		return true
	}
	for q := p; ; q = path.Dir(q) {
		if e, ok := b.wants[q]; ok {
			return e.Kind == KindBind && e.Source == q || e.Kind == KindSymlink && q == p
		}
		if q == "/" {
			return false
		}
	}
}

// bind shows the real host path p at its own place, unless it is denied, and
// covers what is denied below it. It says whether p is visible now.
func (b *builder) bind(p, why string, cow bool) bool {
	fi := b.t.lstat(p)
	if fi == nil || !(fi.IsDir() || fi.Mode().IsRegular()) {
		return false
	}
	if within(p, b.ws) {
		return true
	}
	if why := b.refuses(p); why != "" {
		b.note(p, "left out: "+why)
		return false
	}
	if cow && !fi.IsDir() {
		cow = false
	}
	if e, ok := b.wants[p]; !ok || e.Kind == KindBind && cow && !e.CopyOnWrite {
		if !ok && !cow && b.visible(p) {
			return true
		}
		b.wants[p] = Entry{Kind: KindBind, Target: p, Source: p, IsDir: fi.IsDir(), ReadOnly: !cow, CopyOnWrite: cow, Why: why}
	}
	if fi.IsDir() {
		for _, q := range b.deny.inside(b.t, p) {
			b.mask(q, "it may hold credentials or private data")
		}
	}
	return true
}

// refuses says why no rule may bind the real host path p. The system's own
// folders and the named part of /etc do not come this way.
func (b *builder) refuses(p string) string {
	if why := b.deny.why(p); why != "" {
		return why
	}
	if p == "/" || b.home != "" && within(b.home, p) {
		return "it holds the home folder"
	}
	for _, f := range foreignTrees {
		// A home on another disk, or a test's below /tmp, is a home still.
		if !(b.home != "" && within(p, b.home)) && (within(p, f.path) || within(f.path, p)) {
			return f.why
		}
	}
	for _, s := range personalPaths {
		if b.home != "" && within(p, path.Join(b.home, s)) {
			return "~/" + s + " may hold private data"
		}
	}
	for _, r := range hostRoot {
		if within(p, r.path) || within(r.path, p) {
			return r.why
		}
	}
	if b.home == "" || !within(p, b.home) {
		if foreignHome(p) || isHome(p) && p != "/home/linuxbrew" {
			return "it is in another user's home folder"
		}
		if p == "/srv" {
			return "it is too much of the host"
		}
	}
	return ""
}

// mask covers the host path q, which a bind would show. A link is left alone:
// what it leads to is shown or not by its own place.
func (b *builder) mask(q, why string) { b.maskAt(q, q, why) }

// maskAt is mask for a host path q that is shown at target.
func (b *builder) maskAt(q, target, why string) {
	fi := b.t.lstat(q)
	if fi == nil || within(target, b.ws) || fi.Mode()&fs.ModeSymlink != 0 {
		return
	}
	b.wants[target] = Entry{Kind: KindMask, Target: target, IsDir: fi.IsDir(), ReadOnly: true, Why: why}
	b.note(target, "covered: "+why)
}

// links recreates the links that a path led through and that nothing shows
// yet. It says whether the whole path leads inside as it does outside.
func (b *builder) links(links []link) bool {
	whole := true
	for _, l := range links {
		switch {
		case b.visible(l.at):
		case underAny(l.at, reservedTargets) || within(l.at, "/tmp") || b.deny.why(l.at) != "":
			whole = false
		default:
			if e, taken := b.wants[l.at]; taken {
				whole = whole && e.Kind == KindSymlink && e.Link == l.text
				continue
			}
			b.put(Entry{Kind: KindSymlink, Target: l.at, Link: l.text, Why: "as on the host"})
		}
	}
	return whole
}

// expand gives the existing host paths that pattern, relative to the real
// folder dir, stands for. A star matches within one name.
func (b *builder) expand(dir, pattern string) []string {
	found := []string{dir}
	if pattern == "." {
		return found
	}
	for _, part := range strings.Split(pattern, "/") {
		var next []string
		for _, d := range found {
			if !strings.ContainsRune(part, '*') {
				if q := child(d, part); b.t.lstat(q) != nil {
					next = append(next, q)
				}
				continue
			}
			if fi := b.t.lstat(d); fi == nil || !fi.IsDir() {
				continue
			}
			for _, e := range b.t.list(d) {
				if starMatch(part, e.Name()) {
					next = append(next, child(d, e.Name()))
				}
			}
		}
		found = next
	}
	return found
}

func underAny(p string, dirs []string) bool {
	for _, d := range dirs {
		if within(p, d) {
			return true
		}
	}
	return false
}
