package hostview

import (
	"os"
	"path"
	"strings"
)

// insider looks paths up as a process inside will, before anything is mounted.
type insider struct {
	t     *tree
	at    map[string]Entry
	above map[string]bool // folders that exist because something lies below them
}

func newInsider(t *tree, entries map[string]Entry) *insider {
	in := &insider{t: t, at: entries, above: map[string]bool{"/": true}}
	for p := range entries {
		for p = path.Dir(p); !in.above[p]; p = path.Dir(p) {
			in.above[p] = true
		}
	}
	return in
}

// find follows p inside. It gives the path free of links, and the host path
// behind it, or "" where the sandbox's own folder or file is. rest is the part
// of the path that does not exist inside; it is empty when all of it does.
func (in *insider) find(p string) (real, host, rest string) {
	cur, host := "/", in.hostOf("/", "")
	links := 0
	todo := strings.Split(p, "/")
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			// Found again from the top: cur is free of links.
			todo = append(strings.Split(path.Dir(cur), "/"), todo...)
			cur, host = "/", in.hostOf("/", "")
			continue
		}
		next := path.Join(cur, name)
		text := ""
		e, ok := in.at[next]
		nextHost := ""
		switch {
		case ok && e.Kind == KindSymlink:
			text = e.Link
		case ok:
			nextHost = in.hostOf(next, "")
		case host != "":
			nextHost = path.Join(host, name)
			fi := in.t.lstat(nextHost)
			if fi == nil {
				return cur, host, path.Join(append([]string{name}, todo...)...)
			}
			if fi.Mode()&os.ModeSymlink != 0 {
				text, _ = os.Readlink(in.t.root + nextHost)
			}
		case in.above[next]:
		default:
			return cur, host, path.Join(append([]string{name}, todo...)...)
		}
		if text == "" {
			cur, host = next, nextHost
			continue
		}
		if links++; links > maxLinks {
			return cur, host, path.Join(append([]string{name}, todo...)...)
		}
		todo = append(strings.Split(text, "/"), todo...)
		if strings.HasPrefix(text, "/") {
			cur, host = "/", in.hostOf("/", "")
		}
	}
	return cur, host, ""
}

// hostOf gives the host path that an entry at p shows, or fallback.
func (in *insider) hostOf(p, fallback string) string {
	if e, ok := in.at[p]; ok && (e.Kind == KindBind || e.Kind == KindWorkspace) {
		return e.Source
	}
	return fallback
}

// exists says whether p can be opened inside.
func (in *insider) exists(p string) bool {
	_, _, rest := in.find(p)
	return rest == ""
}

// isDir says whether p is a folder inside.
func (in *insider) isDir(p string) bool {
	real, host, rest := in.find(p)
	if rest != "" {
		return false
	}
	if host != "" {
		fi := in.t.lstat(host)
		return fi != nil && fi.IsDir()
	}
	e, ok := in.at[real]
	return !ok || e.Kind == KindDir || e.Kind == KindHome || e.Kind == KindMask && e.IsDir
}
