package workspace

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"

	bailey "github.com/bailey-sandbox/bailey"
)

// systemTrees are refused with all that lies in them.
var systemTrees = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr"}

// workTrees lie in system trees and are places for people's files after all.
var workTrees = []string{"/run/media", "/run/user", "/usr/local/src", "/usr/src", "/dev/shm"}

// systemFolders are refused themselves; a project may lie below them.
var systemFolders = []string{"/home", "/media", "/mnt", "/opt", "/srv", "/tmp", "/var", "/var/backups", "/var/cache",
	"/var/lib", "/var/local", "/var/log", "/var/mail", "/var/opt", "/var/spool", "/var/tmp"}

// refuse says whether the folder dir is too much of the machine to be a root.
func refuse(dir, data string, iUnderstand bool) error {
	const what = "use the workspace"
	// These two do not work, whoever understands what.
	if data != "" && data != "." {
		if within(data, dir) {
			return bailey.Errorf(bailey.CodeWorkspaceRefused, what, "set BAILEY_HOME to a folder outside it, or work in a folder below it",
				"%s holds Bailey's own data folder %s", dir, data)
		}
		if within(dir, data) {
			return bailey.Errorf(bailey.CodeWorkspaceRefused, what, "work in a folder outside it", "%s lies in Bailey's own data folder", dir)
		}
	}
	if iUnderstand {
		return nil
	}
	const fix = "change to a project folder, or give --i-understand"
	if dir == "/" {
		return bailey.Errorf(bailey.CodeWorkspaceRefused, what, fix, "it is the root of the machine")
	}
	known := real{}
	for home, whose := range homes(known) {
		if dir == home {
			return bailey.Errorf(bailey.CodeWorkspaceRefused, what, fix, "%s is the home folder of %s", dir, whose)
		}
		if within(home, dir) {
			return bailey.Errorf(bailey.CodeWorkspaceRefused, what, fix, "%s holds the home folder of %s", dir, whose)
		}
	}
	for _, s := range systemFolders {
		if dir == s || dir == known.resolve(s) {
			return bailey.Errorf(bailey.CodeWorkspaceRefused, what, fix, "%s is a folder of the system", dir)
		}
	}
	for _, w := range workTrees {
		if within(dir, w) && dir != w {
			return nil
		}
	}
	for _, s := range systemTrees {
		if within(dir, s) {
			return bailey.Errorf(bailey.CodeWorkspaceRefused, what, fix, "%s is a folder of the system", dir)
		}
	}
	return nil
}

// real gives resolveExisting's answers for many paths that share their parents,
// as the dozens of places in /var do, and asks about each parent once. It is as
// old as its first question, and made for one.
type real map[string]string

func (known real) resolve(path string) string {
	path = filepath.Clean(path)
	if r, ok := known[path]; ok {
		return r
	}
	r := path
	if parent := filepath.Dir(path); parent != path {
		r = filepath.Join(known.resolve(parent), filepath.Base(path))
		if fi, err := os.Lstat(r); err == nil && fi.Mode()&os.ModeSymlink != 0 {
			r = resolveExisting(r)
		}
	}
	known[path] = r
	return r
}

// passwd is a variable for tests.
var passwd = "/etc/passwd"

// homes gives the home folders of this machine, resolved, and whose each is.
// Homes that accounts of the system have in system folders, or at /, do not
// count: those folders have their own rule.
func homes(known real) map[string]string {
	list := map[string]string{}
	add := func(home, whose string) {
		if !filepath.IsAbs(home) {
			return
		}
		for _, h := range []string{filepath.Clean(home), known.resolve(home)} {
			if h != "/" {
				if _, there := list[h]; !there {
					list[h] = whose
				}
			}
		}
	}
	add(os.Getenv("HOME"), "this user")
	add("/root", "root")
	if f, err := os.Open(passwd); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			// name:password:uid:gid:comment:home:shell, see passwd(5)
			if fields := strings.Split(lines.Text(), ":"); len(fields) >= 6 {
				add(fields[5], fields[0])
			}
		}
	}
	return list
}
