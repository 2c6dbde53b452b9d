package build

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// ignore is a .dockerignore: what of a context is as if it were not there.
type ignore struct {
	rules []rule
	back  bool // some rule brings files back
}

type rule struct {
	pattern *regexp.Regexp
	back    bool
}

const maxIgnoreRules = 1000

func parseIgnore(text []byte) (*ignore, error) {
	g := &ignore{}
	for l := range strings.SplitSeq(string(text), "\n") {
		l = strings.TrimSpace(strings.TrimPrefix(l, "\ufeff"))
		if l == "" || l[0] == '#' {
			continue
		}
		r := rule{}
		if l[0] == '!' {
			r.back, l = true, strings.TrimSpace(l[1:])
		}
		l = path.Clean("/" + filepath.ToSlash(l))[1:]
		if l == "" {
			continue
		}
		var err error
		if r.pattern, err = globExpr(l); err != nil {
			return nil, bailey.Errorf(bailey.CodeUsage, "read .dockerignore", "", "%q is no pattern: %w", l, err)
		}
		g.back = g.back || r.back
		if g.rules = append(g.rules, r); len(g.rules) > maxIgnoreRules {
			return nil, bailey.Errorf(bailey.CodeUsage, "read .dockerignore", "", "it has more than %d rules", maxIgnoreRules)
		}
	}
	return g, nil
}

// globExpr makes an expression of a pattern: * and ? stay in one component, ** is
// any number of them, [] is a class.
func globExpr(p string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString("^")
	for i := 0; i < len(p); i++ {
		switch c := p[i]; c {
		case '*':
			if i+1 < len(p) && p[i+1] == '*' {
				i++
				if i+1 < len(p) && p[i+1] == '/' {
					i++
					b.WriteString("(.*/)?")
				} else {
					b.WriteString(".*")
				}
				continue
			}
			b.WriteString("[^/]*")
		case '?':
			b.WriteString("[^/]")
		case '[', ']', '^', '-':
			b.WriteByte(c)
		case '\\':
			if i++; i < len(p) {
				b.WriteString(regexp.QuoteMeta(p[i : i+1]))
			}
		default:
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		}
	}
	b.WriteString("$")
	return regexp.Compile(b.String())
}

// hides says whether the file, relative to the context, is ignored: the last rule
// that fits it or a folder above it counts.
func (g *ignore) hides(name string) bool {
	hidden := false
	for _, r := range g.rules {
		for p := name; p != "." && p != "" && p != "/"; p = path.Dir(p) {
			if r.pattern.MatchString(p) {
				hidden = !r.back
				break
			}
		}
	}
	return hidden
}

// apply removes from the folder what is ignored.
func (g *ignore) apply(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return g.below(root, ".")
}

func (g *ignore) below(root *os.Root, at string) error {
	d, err := root.Open(at)
	if err != nil {
		return err
	}
	list, err := d.ReadDir(-1)
	d.Close()
	if err != nil {
		return err
	}
	for _, e := range list {
		name := path.Join(at, e.Name())
		hidden := g.hides(name)
		switch {
		case hidden && (!e.IsDir() || !g.back):
			err = root.RemoveAll(name)
		case e.IsDir():
			if err = g.below(root, name); err == nil && hidden {
				_ = root.Remove(name) // stays if something in it was brought back
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
