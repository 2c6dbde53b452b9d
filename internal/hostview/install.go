package hostview

import (
	"path"
	"strings"
)

// toolchainOf finds the toolchain whose root holds the real path p, the
// innermost if there are several. The root is "" if there is none.
func (b *builder) toolchainOf(p string) (best toolchain, root string) {
	for _, t := range toolchains {
		for _, r := range b.rootsOf(t) {
			if within(p, r) && len(r) > len(root) {
				best, root = t, r
			}
		}
	}
	return best, root
}

// rootsOf gives the real places where t may be, most wanted first.
func (b *builder) rootsOf(t toolchain) []string {
	if cached, ok := b.roots[t.name]; ok {
		return cached
	}
	var found []string
	add := func(p string) {
		real, fi, links, err := b.t.resolve(p)
		if err != nil || !fi.IsDir() || real == "/" || b.home != "" && within(b.home, real) {
			return
		}
		found = append(found, real)
		b.rootLinks[real] = append(b.rootLinks[real], links...)
	}
	if t.env != "" {
		// A list, as GOPATH may be, counts by its first part.
		if v, _, _ := strings.Cut(b.host[t.env], ":"); path.IsAbs(v) {
			add(v)
		}
	}
	if b.home != "" {
		for _, r := range t.roots {
			add(path.Join(b.home, r))
		}
	}
	b.roots[t.name] = found
	return found
}

// showToolchain shows t, whose root is the real folder root.
func (b *builder) showToolchain(t toolchain, root string) {
	key := t.name + "\x00" + root
	if b.shown[key] {
		return
	}
	b.shown[key] = true
	for _, pattern := range t.show {
		for _, p := range b.expand(root, pattern) {
			b.bindThrough(root, p, t.name, false)
		}
	}
	b.showCaches(t, root)
	for _, pattern := range t.hide {
		for _, p := range b.expand(root, pattern) {
			b.mask(p, "it may hold credentials")
		}
	}
	for _, name := range t.needs {
		for _, other := range toolchains {
			if other.name != name {
				continue
			}
			for _, r := range b.rootsOf(other) {
				b.showToolchain(other, r)
			}
		}
	}
}

// showCaches shows the folders of t that are seen copy-on-write.
func (b *builder) showCaches(t toolchain, root string) {
	for _, pattern := range t.cow {
		for _, p := range b.expand(root, pattern) {
			b.bindThrough(root, p, t.name, true)
		}
	}
}

// bindThrough shows p, which is below a toolchain's root and may be a link:
// then the link is recreated, and what it leads to is shown if a rule of its
// own shows it. Only a cache, which people move to larger disks, may lie
// anywhere that is nobody else's.
func (b *builder) bindThrough(root, p, why string, cow bool) {
	real, _, links, err := b.t.resolve(p)
	if err != nil {
		return
	}
	switch {
	case len(links) == 0:
		if b.bind(real, why, cow) {
			b.links(b.rootLinks[root])
		}
	case b.showFor(real), cow && !within(real, b.home) && b.bind(real, why, true):
		b.links(links)
	default:
		b.note(p, "left out: it is a link to "+real)
	}
}

// commandCaches shows the caches of toolchains whose command is on PATH.
func (b *builder) commandCaches(folders []string) {
	for _, t := range toolchains {
		if t.command == "" {
			continue
		}
		for _, dir := range folders {
			if real, fi, _, err := b.t.resolve(path.Join(dir, t.command)); err == nil && fi.Mode().IsRegular() && b.visible(real) {
				if roots := b.rootsOf(t); len(roots) > 0 {
					b.showCaches(t, roots[0])
				}
				break
			}
		}
	}
}
