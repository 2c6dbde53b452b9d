//go:build linux

package nested

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

//go:embed packages.txt
var packageList string

// wanted are the packages of the list.
func wanted() (names []string) {
	for line := range strings.Lines(packageList) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			names = append(names, line)
		}
	}
	return names
}

// installed is what dpkg knows of one package.
type installed struct {
	name, version string
	needs         [][]string // of each list of choices one
	provides      []string
}

// database reads what is installed on this machine.
func database() (map[string]*installed, error) {
	out, err := exec.Command("dpkg-query", "-W", "-f", "${db:Status-Abbrev}|${Package}|${Version}|${Pre-Depends}, ${Depends}|${Provides}\n").Output()
	if err != nil {
		return nil, fmt.Errorf("ask dpkg what is installed: %w", err)
	}
	have := map[string]*installed{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) < 5 || !strings.HasPrefix(f[0], "ii") {
			continue
		}
		// The separator of choices is the fields' too.
		p := &installed{name: f[1], version: f[2]}
		for _, need := range strings.Split(strings.Join(f[3:len(f)-1], "|"), ",") {
			var choices []string
			for _, c := range strings.Split(need, "|") {
				if name := bareName(c); name != "" {
					choices = append(choices, name)
				}
			}
			if len(choices) > 0 {
				p.needs = append(p.needs, choices)
			}
		}
		for _, name := range strings.Split(f[len(f)-1], ",") {
			if name = bareName(name); name != "" {
				p.provides = append(p.provides, name)
			}
		}
		have[p.name] = p
	}
	return have, nil
}

// bareName leaves a package's name of a relation.
func bareName(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.IndexAny(s, " (:"); i >= 0 {
		s = s[:i]
	}
	return s
}

// closure gives the packages with all that they depend on, by name. What is not
// installed and no package's only choice is left out.
func closure(have map[string]*installed, names []string) ([]*installed, error) {
	byProvided := map[string]*installed{}
	for _, p := range have {
		for _, name := range p.provides {
			byProvided[name] = p
		}
	}
	seen := map[string]*installed{}
	var missing []string
	var add func(name string) bool
	add = func(name string) bool {
		p := have[name]
		if p == nil {
			p = byProvided[name]
		}
		if p == nil {
			return false
		}
		if seen[p.name] != nil {
			return true
		}
		seen[p.name] = p
		for _, choices := range p.needs {
			_ = slices.ContainsFunc(choices, add) // the first that is there
		}
		return true
	}
	for _, name := range names {
		if !add(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("not installed here: %s", strings.Join(missing, " "))
	}
	var list []*installed
	for _, p := range seen {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *installed) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// left are folders that no test looks into.
var left = []string{"/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/", "/usr/share/lintian/", "/usr/share/bug/", "/usr/share/zoneinfo/"}

// copyPackages copies the packages' files from this machine's root.
func copyPackages(list []*installed, to string) error {
	args := []string{"-L"}
	for _, p := range list {
		args = append(args, p.name)
	}
	out, err := exec.Command("dpkg-query", args...).Output()
	if err != nil {
		return fmt.Errorf("ask dpkg for the files: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		p := strings.TrimSpace(line)
		if !filepath.IsAbs(p) || p == "/." || slices.ContainsFunc(left, func(dir string) bool { return strings.HasPrefix(p+"/", dir) }) {
			continue
		}
		if err := copyPath(p, to); err != nil {
			return err
		}
	}
	return nil
}

// copyPath copies a file, a link or an empty folder, with the folders above it. What
// lies behind a link in the path is copied to where the link leads.
func copyPath(p, to string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // left out when the package was installed
	} else if err != nil {
		return err
	}
	if dir != filepath.Dir(p) { // such as /bin
		if err := copyPath(filepath.Dir(p), to); err != nil {
			return err
		}
	}
	p = filepath.Join(dir, filepath.Base(p))
	fi, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	target := filepath.Join(to, p)
	if exists(target) {
		return nil
	}
	if p != "/" {
		if err := copyPath(dir, to); err != nil {
			return err
		}
	}
	switch mode := fi.Mode(); {
	case mode.IsDir():
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		return os.Chmod(target, mode&(fs.ModePerm|fs.ModeSticky))
	case mode&fs.ModeSymlink != 0:
		link, err := os.Readlink(p)
		if err != nil {
			return err
		}
		if err := os.Symlink(link, target); err != nil {
			return err
		}
		// An alternative leads elsewhere by a second link.
		if filepath.IsAbs(link) && strings.HasPrefix(link, "/etc/alternatives/") {
			return copyPath(link, to)
		}
		return nil
	case mode.IsRegular():
		return copyFile(p, target, fi)
	}
	return nil
}

func copyFile(from, to string, fi fs.FileInfo) error {
	r, err := os.Open(from)
	if errors.Is(err, fs.ErrPermission) {
		return nil // an ordinary user's machine has no secrets of its root
	} else if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	st := fi.Sys().(*syscall.Stat_t)
	if os.Geteuid() == 0 {
		if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(to, fi.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid))
}
