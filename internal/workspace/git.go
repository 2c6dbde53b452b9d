package workspace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	bailey "github.com/bailey-sandbox/bailey"
)

// maxGitFile bounds the small files of git that are read here, in bytes.
const maxGitFile = 1 << 20

// outsideGit gives the git folder that the workspace dir needs and that does
// not lie in it, and why; "" when there is none.
//
// dir/.git is a file in a worktree and in a submodule (gitrepository-layout).
// That file can have been written by a sandbox and then applied, so it must
// not be able to name any folder of the machine it likes: the git folder has
// to look like one, and to point back at this workspace. A separate git folder
// cannot point back, and so needs a person's word.
func outsideGit(dir string, iUnderstand bool) (git, why string, err error) {
	const what = "use the workspace"
	dotgit := filepath.Join(dir, ".git")
	fi, err := os.Lstat(dotgit)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "", "", nil
		}
		return "", "", bailey.Errorf(bailey.CodeWorkspaceRefused, what, "", "%w", err)
	}
	var gitdir string
	switch {
	case fi.IsDir():
		return "", "", nil
	case fi.Mode()&os.ModeSymlink != 0:
		if gitdir, err = filepath.EvalSymlinks(dotgit); err != nil {
			return "", "", nil // dangling: git does not work outside either
		}
		if within(gitdir, dir) {
			return "", "", nil
		}
	case fi.Mode().IsRegular():
		data, err := readSmall(dotgit)
		if err != nil {
			return "", "", bailey.Errorf(bailey.CodeWorkspaceRefused, what, "", "%w", err)
		}
		target, err := ParseGitFile(data)
		if err != nil {
			return "", "", nil // git refuses it, too
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		if gitdir, err = filepath.EvalSymlinks(target); err != nil {
			return "", "", nil // as above
		}
	default:
		return "", "", nil
	}
	common := gitdir
	if data, err := readSmall(filepath.Join(gitdir, "commondir")); err == nil {
		c := strings.TrimRight(string(data), "\r\n")
		if !filepath.IsAbs(c) {
			c = filepath.Join(gitdir, c)
		}
		if common, err = filepath.EvalSymlinks(c); err != nil {
			return "", "", nil
		}
	}
	if within(common, dir) && within(gitdir, dir) {
		return "", "", nil
	}
	refused := func(format string, args ...any) (string, string, error) {
		return "", "", bailey.Errorf(bailey.CodeWorkspaceRefused, what,
			"look at "+dotgit+"; then run git worktree repair, or give --i-understand", format, args...)
	}
	if !looksLikeGit(common) {
		return refused("its .git names %s, which is not a git folder", common)
	}
	if !within(gitdir, common) {
		return refused("its .git names %s, whose shared folder %s lies elsewhere", gitdir, common)
	}
	why = "the git folder of this worktree lies outside it"
	if !pointsBack(gitdir, dir) {
		if !iUnderstand {
			return refused("its .git names the git folder %s, which does not name this workspace in turn", gitdir)
		}
		why = "the git folder of this workspace lies outside it"
	}
	return common, why, nil
}

// ParseGitFile reads the content of a .git file: "gitdir: " and a path, as
// gitrepository-layout has it.
func ParseGitFile(data []byte) (string, error) {
	rest, ok := bytes.CutPrefix(data, []byte("gitdir: "))
	if !ok {
		return "", errors.New("it does not start with \"gitdir: \"")
	}
	path := strings.TrimRight(string(rest), "\r\n")
	if path == "" || strings.ContainsAny(path, "\x00\n") {
		return "", errors.New("it names no path")
	}
	return path, nil
}

// looksLikeGit is git's own test: HEAD, objects and refs.
func looksLikeGit(dir string) bool {
	if fi, err := os.Lstat(filepath.Join(dir, "HEAD")); err != nil || fi.IsDir() {
		return false
	}
	for _, name := range []string{"objects", "refs"} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || !fi.IsDir() {
			return false
		}
	}
	return true
}

// pointsBack says whether the git folder names the workspace: a worktree's in
// its file gitdir, a submodule's by core.worktree in its config.
func pointsBack(gitdir, dir string) bool {
	same := func(path, base string) bool {
		if !filepath.IsAbs(path) {
			path = filepath.Join(base, path)
		}
		p, err := filepath.EvalSymlinks(path)
		return err == nil && p == dir
	}
	if data, err := readSmall(filepath.Join(gitdir, "gitdir")); err == nil {
		p := strings.TrimRight(string(data), "\r\n")
		if filepath.Base(p) == ".git" && same(filepath.Dir(p), gitdir) {
			return true
		}
	}
	for _, name := range []string{"config", "config.worktree"} {
		if data, err := readSmall(filepath.Join(gitdir, name)); err == nil {
			if p := coreWorktree(data); p != "" && same(p, gitdir) {
				return true
			}
		}
	}
	return false
}

func coreWorktree(data []byte) string { return GitConfigValue(data, "core", "worktree") }

// GitConfigValue finds the last value of a key in a git config, in the form
// in which git itself writes it; "" when there is none. Section and key are in
// lower case.
func GitConfigValue(data []byte, section, name string) string {
	in := ""
	value := ""
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			in = strings.ToLower(strings.TrimSpace(strings.Trim(line, "[]")))
			continue
		}
		if key, v, ok := strings.Cut(line, "="); ok && in == section && strings.EqualFold(strings.TrimSpace(key), name) {
			value = strings.TrimSpace(v)
			if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
				value = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(value[1 : len(value)-1])
			}
		}
	}
	return value
}

func readSmall(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxGitFile {
		return nil, fmt.Errorf("%s is not a small file", path)
	}
	return os.ReadFile(path)
}
