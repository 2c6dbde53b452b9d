package hostview

import (
	"io/fs"
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
// then the link is recreated, and what it leads to is shown if a rule of its own shows it. Only a cache, which
// people move to larger disks, may lie anywhere that is nobody else's.
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

// showPlain shows a real folder of programs that no table knows.
func (b *builder) showPlain(dir string) bool {
	if why := b.deny.why(dir); why != "" {
		b.note(dir, "left out of PATH: "+why)
		return false
	}
	parent := path.Dir(dir)
	if b.goRoot(parent) && dir == path.Join(parent, "bin") {
		return b.bind(parent, "Go's own folder", false)
	}
	if !binNames[path.Base(dir)] {
		return b.showPrograms(dir)
	}
	if !b.bind(dir, "on PATH", false) {
		return false
	}
	b.hideByName(dir)
	if parent != b.home && parent != "/" && !within(b.home, parent) {
		for _, name := range prefixFolders {
			if p := path.Join(parent, name); p != dir {
				if fi := b.t.lstat(p); fi != nil && fi.Mode()&fs.ModeSymlink == 0 {
					b.bind(p, "beside "+path.Base(dir)+" on PATH", false)
				}
			}
		}
	}
	return true
}

// goRoot says whether dir is Go's own installation.
func (b *builder) goRoot(dir string) bool {
	if b.home != "" && within(b.home, dir) || dir == "/" {
		return false
	}
	for _, p := range []string{"bin/go", "src/runtime/runtime.go", "pkg/tool"} {
		if !b.t.exists(path.Join(dir, p)) {
			return false
		}
	}
	return true
}

// showPrograms shows only the programs in a folder that may hold other things
// too, such as ~/work in PATH, and the folders of an installation among them.
func (b *builder) showPrograms(dir string) bool {
	n := 0
	for _, e := range b.t.list(dir) {
		p := path.Join(dir, e.Name())
		if !e.Type().IsRegular() || secretName(e.Name()) {
			continue
		}
		if fi := b.t.lstat(p); fi == nil || fi.Mode().Perm()&0o111 == 0 {
			continue
		}
		if n++; n > maxToolLinks {
			b.note(dir, "only its first programs are shown: it is not a folder of programs alone")
			break
		}
		b.bind(p, "program on PATH", false)
	}
	if n > 0 {
		for _, name := range []string{"lib", "lib64", "libexec"} {
			if fi := b.t.lstat(path.Join(dir, name)); fi != nil && fi.IsDir() {
				b.bind(path.Join(dir, name), "beside programs on PATH", false)
			}
		}
	}
	if n == 0 {
		b.note(dir, "left out of PATH: it holds no programs")
		return false
	}
	b.put(Entry{Kind: KindDir, Target: dir, Mode: 0o755, Why: "on PATH"})
	b.note(dir, "only its programs are shown: it is not named like a folder of programs alone")
	return true
}

// hideByName covers files in a shown folder whose names speak of credentials.
func (b *builder) hideByName(dir string) {
	for _, e := range b.t.list(dir) {
		if secretName(e.Name()) {
			b.mask(path.Join(dir, e.Name()), "its name speaks of credentials")
		}
	}
}

// followTools looks at the links in a shown folder of programs and shows the
// installations that they lead to.
func (b *builder) followTools(dir string) {
	n := 0
	for _, e := range b.t.list(dir) {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		if n++; n > maxToolLinks {
			b.note(dir, "it has more links than are followed; some of its programs may be missing")
			return
		}
		b.followTool(path.Join(dir, e.Name()))
	}
}

func (b *builder) followTool(p string) {
	real, fi, links, err := b.t.resolve(p)
	if err != nil || b.visible(real) && len(links) == 1 {
		return
	}
	leave := func(why string) { b.note(p, "leads nowhere inside: "+why) }
	if !fi.Mode().IsRegular() {
		if !b.visible(real) {
			leave(real + " is not a program")
		}
		return
	}
	if why := b.deny.why(real); why != "" {
		leave(why)
		return
	}
	if !b.visible(real) {
		for _, f := range foreignTrees {
			if within(real, f.path) && !(b.home != "" && within(real, b.home)) {
				leave(f.why)
				return
			}
		}
		if (b.home == "" || !within(real, b.home)) && foreignHome(real) {
			leave("it is in another user's home folder")
			return
		}
		if !b.showFor(real) && !b.showLinked(real) {
			leave(real + " may not be shown")
			return
		}
		b.followInterpreter(real)
	}
	b.links(links)
}

// showLinked shows what a link to the real program p needs when no table knows
// its place.
func (b *builder) showLinked(p string) bool {
	if secretName(path.Base(p)) {
		return false
	}
	if b.home != "" && within(p, b.home) {
		// ~/.local/share/TOOL, ~/.local/opt/TOOL and ~/opt/TOOL are the
		// customary shelves for whole installations.
		for _, shelf := range []string{".local/share", ".local/opt", "opt"} {
			dir := path.Join(b.home, shelf)
			if rel := below(p, dir); within(p, dir) && strings.ContainsRune(rel, '/') {
				first, _, _ := strings.Cut(rel, "/")
				root := path.Join(dir, first)
				if b.bind(root, "a program on PATH leads there", false) {
					b.hideByName(root)
				}
				return b.visible(p)
			}
		}
	}
	// An installation has bin and lib; a checkout, which may hold anything,
	// has .git too, and only gives the program itself.
	for dir := path.Dir(p); dir != "/" && (b.home == "" || !within(b.home, dir)); dir = path.Dir(dir) {
		if b.t.exists(path.Join(dir, "bin")) && b.t.exists(path.Join(dir, "lib")) && !b.t.exists(path.Join(dir, ".git")) &&
			len(b.deny.inside(b.t, dir)) == 0 {
			for _, name := range append([]string{"bin"}, prefixFolders...) {
				if fi := b.t.lstat(path.Join(dir, name)); fi != nil && fi.Mode()&fs.ModeSymlink == 0 {
					b.bind(path.Join(dir, name), "a program on PATH leads there", false)
				}
			}
			return b.visible(p)
		}
	}
	return b.bind(p, "a program on PATH leads there", false)
}

// followInterpreter shows the Python that a virtual environment's program runs
// in: the link bin/python beside it often leads to another toolchain.
func (b *builder) followInterpreter(p string) {
	python := path.Join(path.Dir(p), "python")
	if path.Dir(path.Dir(p)) == "/" || !b.t.exists(path.Join(path.Dir(path.Dir(p)), "pyvenv.cfg")) {
		return
	}
	if real, _, links, err := b.t.resolve(python); err == nil && b.deny.why(real) == "" && b.showFor(real) {
		b.links(links)
	}
}
