package hostview

import (
	"path"
	"strings"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// maxToolLinks is how many links out of one folder of programs are followed.
// More are noted, not followed.
const maxToolLinks = 512

// foreignTrees are places whose programs are not this system's, or that only
// work with something outside of the sandbox.
var foreignTrees = []struct{ path, why string }{
	{"/snap", "snap programs need snapd, which is not inside"},
	{"/var/lib/snapd", "snap programs need snapd, which is not inside"},
	{"/var/lib/flatpak", "flatpak programs need a desktop session, which is not inside"},
	{"/run/wrappers", "setuid programs gain nothing inside"},
	{"/mnt", "other disks are not inside"},
	{"/media", "other disks are not inside"},
	{"/boot", "it holds no programs"},
	{"/etc", "only a named part of /etc is inside"},
	{"/proc", "the sandbox has its own /proc"},
	{"/sys", "the sandbox has its own /sys"},
	{"/dev", "the sandbox has its own /dev"},
	{"/tmp", "the sandbox has its own /tmp"},
	{"/var/tmp", "the host's temporary files are not inside"},
	{"/run", "the host's /run is not inside"},
}

// searchPath shows what the folders of PATH need, and gives PATH as it can be
// inside. Its folders still have to be tested for being there.
func (b *builder) searchPath(value string) []string {
	if value == "" {
		value = defaultPath
	}
	var out []string
	seen := make(map[string]bool)
	for _, p := range strings.Split(value, ":") {
		if p == "" {
			b.note("PATH", "an empty part, which means the current folder, was left out")
			continue
		}
		if !path.IsAbs(p) {
			b.note("PATH", "the relative folder "+quote(p)+" was left out")
			continue
		}
		p = path.Clean(p)
		if seen[p] {
			continue
		}
		seen[p] = true
		if q := b.searchFolder(p); q != "" {
			out = append(out, q)
		}
	}
	return out
}

// searchFolder shows what one folder of PATH needs. It gives the path by which
// the folder is reached inside, or "" if it is left out.
func (b *builder) searchFolder(p string) string {
	real, fi, links, err := b.t.resolve(p)
	if err != nil || !fi.IsDir() {
		return "" // not a folder on the host either
	}
	leave := func(why string) string {
		b.note(p, "left out of PATH: "+why)
		return ""
	}
	inside := within(real, b.ws)
	switch {
	case real == "/" || b.home != "" && within(b.home, real):
		return leave("it is, or holds, the home folder")
	case b.deny.bailey != "" && within(real, b.deny.bailey):
		return leave("it is Bailey's own data")
	case inside:
		b.note(p, "is in PATH and in the workspace: what runs inside can change its programs")
	case fi.Mode().Perm()&0o002 != 0:
		return leave("everybody on the host can write to it")
	}
	if !inside {
		for _, f := range foreignTrees {
			if within(real, f.path) && !b.visible(real) && !(b.home != "" && within(real, b.home)) {
				return leave(f.why)
			}
		}
		if b.home == "" || !within(real, b.home) {
			if isHome(real) || foreignHome(real) {
				return leave("it is in another user's home folder")
			}
		}
		if !b.showFolder(real) {
			return ""
		}
	}
	if !b.links(links) {
		b.note(p, "is "+real+" in PATH, because its links cannot be made inside")
		return real
	}
	return p
}

// foreignHome says whether the real path p lies in a home folder; asked only
// about paths outside of the caller's. Homebrew's folder is no person's.
func foreignHome(p string) bool {
	if within(p, "/home/linuxbrew/.linuxbrew") {
		return false
	}
	return underAny(p, []string{"/home", "/root", "/var/home", "/export/home", "/Users"})
}

// showFolder shows a real folder of programs and what belongs to it.
func (b *builder) showFolder(real string) bool {
	if !b.showFor(real) && !b.showPlain(real) {
		return false
	}
	if real == "/usr/local/bin" || !b.systemFolder(real) {
		b.followTools(real)
	}
	return true
}

// systemFolder says whether real belongs to the distribution: its thousands of
// programs are not looked at one by one.
func (b *builder) systemFolder(real string) bool {
	return underAny(real, []string{"/usr", "/bin", "/sbin", "/nix", "/gnu"})
}

// showFor shows the known installation that the real path p belongs to, and
// says whether p is visible after that.
func (b *builder) showFor(p string) bool {
	if b.visible(p) {
		return true
	}
	if root := b.storeRoot(p); root != "" {
		return b.bind(root, "programs on PATH", false)
	}
	if within(p, "/home/linuxbrew/.linuxbrew") {
		for _, t := range toolchains {
			if t.name == "linuxbrew" {
				b.showToolchain(t, "/home/linuxbrew/.linuxbrew")
			}
		}
		return b.visible(p)
	}
	if t, root := b.toolchainOf(p); root != "" {
		b.showToolchain(t, root)
		return b.visible(p)
	}
	return false
}

// storeRoot gives the folder that is shown whole when p lies in it: a package
// below /opt, or the store of a package manager that keeps only packages.
func (b *builder) storeRoot(p string) string {
	for _, store := range []string{"/nix/store", "/gnu/store"} {
		if within(p, store) {
			return store
		}
	}
	for _, shelf := range []string{"/opt", "/var/usrlocal"} {
		real, _, _, err := b.t.resolve(shelf)
		if err != nil || !within(p, real) || p == real {
			continue
		}
		if shelf == "/var/usrlocal" {
			return real // /usr/local of an image-based Fedora
		}
		first, _, _ := strings.Cut(below(p, real), "/")
		return path.Join(real, first)
	}
	return ""
}
