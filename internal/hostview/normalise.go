package hostview

import (
	"path"
	"sort"

	"github.com/bailey-sandbox/bailey"
)

// normalise puts what was asked for into an order in which it can be made, and
// drops what needs no entry of its own because an entry above shows the same.
// What has no place to be mounted on is left out with a note; if --mount asked
// for it, that is an error with the code usage.
func (b *builder) normalise() ([]Entry, error) {
	targets := make([]string, 0, len(b.wants))
	for p := range b.wants {
		targets = append(targets, p)
	}
	sort.Strings(targets) // a parent is a prefix of its children
	kept := make(map[string]Entry, len(targets))
	for _, p := range targets {
		e := b.wants[p]
		parent, ok := nearest(kept, p)
		if !ok {
			addParents(kept, p, "/")
			kept[p] = e
			continue
		}
		switch parent.Kind {
		case KindDir, KindHome:
			if e.Kind == KindMask {
				continue // nothing shows what it covers
			}
			addParents(kept, p, parent.Target)
			kept[p] = e
		case KindBind, KindWorkspace:
			there := path.Join(parent.Source, below(p, parent.Target))
			if why := b.redundant(e, parent, there); why == "" {
				kept[p] = e
			} else if e.Kind == KindHome || e.Kind == KindWorkspace {
				return nil, bailey.Errorf(bailey.CodeUsage, "show the "+string(e.Kind)+" at "+quote(p),
					"mount nothing over "+parent.Target, "%s", why)
			} else if e.user && why != "shown already" {
				return nil, bailey.Errorf(bailey.CodeUsage, "mount "+quote(e.Source)+" at "+quote(p),
					"name a target that exists, or one outside of "+parent.Target, "%s", why)
			}
		default:
			if e.user {
				return nil, bailey.Errorf(bailey.CodeUsage, "mount "+quote(e.Source)+" at "+quote(p),
					"name another target", "%s is not a folder inside", parent.Target)
			}
		}
	}
	order := make([]string, 0, len(kept))
	for p := range kept {
		order = append(order, p)
	}
	sort.Strings(order)
	entries := make([]Entry, len(order))
	for i, p := range order {
		entries[i] = kept[p]
		if e := &entries[i]; e.Kind == KindDir && (within(p, b.home) || within(p, "/tmp")) {
			e.ReadOnly = false
		}
	}
	return entries, nil
}

// redundant says why e needs no entry below parent, which shows the host path
// there at e's target; "" if it needs one.
func (b *builder) redundant(e, parent Entry, there string) string {
	real, fi, links, err := b.t.resolve(there)
	exists := err == nil && len(links) == 0 && real == there
	switch {
	case e.Kind == KindMask && exists && fi.IsDir() == e.IsDir:
		return ""
	case e.Kind == KindMask:
		return "shown already"
	case parent.Kind == KindWorkspace && !e.user && e.Kind != KindWorkspace:
		return "shown already"
	case e.Kind == KindBind && e.Source == there && e.ReadOnly == parent.ReadOnly && e.CopyOnWrite == parent.CopyOnWrite &&
		parent.Kind == KindBind:
		return "shown already"
	case !exists:
		return "there is nothing at " + e.Target + " to mount on, and " + parent.Target + " is the host's"
	case e.Kind == KindSymlink || e.Kind == KindDir || e.Kind == KindFile:
		return "shown already"
	case e.IsDir != fi.IsDir():
		return "a folder and a file cannot be mounted on each other"
	}
	return ""
}

// nearest gives the entry that is closest above p.
func nearest(kept map[string]Entry, p string) (Entry, bool) {
	for p != "/" {
		p = path.Dir(p)
		if e, ok := kept[p]; ok {
			return e, true
		}
	}
	return Entry{}, false
}

// addParents adds the folders between top, which exists, and p. The folders
// that the sandbox has of its own are the driver's.
func addParents(kept map[string]Entry, p, top string) {
	for d := path.Dir(p); d != top && d != "/"; d = path.Dir(d) {
		if _, ok := kept[d]; !ok && d != "/tmp" && !underAny(d, reservedTargets) {
			kept[d] = Entry{Kind: KindDir, Target: d, Mode: 0o755, ReadOnly: true, Why: "holds what is shown below"}
		}
	}
}
