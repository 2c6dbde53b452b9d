package hostview

import (
	"io/fs"
	"path"
	"strings"
)

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

// hideByName covers what lies in a shown folder and has a name that speaks of
// credentials, or is the way to a program of the host.
func (b *builder) hideByName(dir string) {
	for _, e := range b.t.list(dir) {
		switch {
		case secretName(e.Name()):
			b.mask(path.Join(dir, e.Name()), "its name speaks of credentials")
		case e.Type()&(fs.ModeSocket|fs.ModeDevice|fs.ModeNamedPipe) != 0:
			b.mask(path.Join(dir, e.Name()), "it leads to a program of the host")
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
		b.followTool(child(dir, e.Name()))
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
