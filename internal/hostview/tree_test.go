package hostview

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	root := plant(t, `
		a/b/file = x
		abs -> /a/b
		rel -> a/./b
		up -> a/b/../../a
		out -> ../../../../../../a
		chain -> abs
		loop -> loop2
		loop2 -> loop
		dangling -> nowhere
		a/b/back -> ..
		0000 closed = x`)
	tr := newTree(root)
	for p, want := range map[string]string{
		"/": "/", "/a/b/file": "/a/b/file", "/abs/file": "/a/b/file", "/rel/file": "/a/b/file", "/up/b": "/a/b", "/out/b": "/a/b", "/chain": "/a/b",
		"/a/b/back/b": "/a/b", "/abs/back": "/a", "/abs/..": "/a", "/../../a": "/a", "//a///b/": "/a/b", "/closed": "/closed",
	} {
		if real, fi, _, err := tr.resolve(p); err != nil || real != want || fi == nil {
			t.Errorf("%s leads to %s, %v; not to %s", p, real, err, want)
		}
	}
	for _, p := range []string{"/nowhere", "/a/b/file/x", "/dangling", "/a/b/file/..", "/a/nowhere/.."} {
		if real, _, _, err := tr.resolve(p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s leads to %s, %v", p, real, err)
		}
	}
	if _, _, links, err := tr.resolve("/loop"); !errors.Is(err, errTooManyLinks) || len(links) != maxLinks {
		t.Errorf("a loop gives %v after %d links", err, len(links))
	}
	_, _, links, err := tr.resolve("/chain/file")
	if err != nil || len(links) != 2 || links[0] != (link{"/chain", "abs"}) || links[1] != (link{"/abs", "/a/b"}) {
		t.Errorf("links are %v, %v", links, err)
	}
}

func FuzzStarMatch(f *testing.F) {
	for _, s := range [][2]string{{"a*", "ab"}, {"*", ""}, {"*.pem", ".pem"}, {"a*b*c", "abbc"}, {"python*", "python3.11"}, {"a", "a"}, {"", ""}, {"a*a", "a"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if strings.ContainsAny(pattern, `?[]\/`) || strings.ContainsRune(name, '/') || strings.Count(pattern, "*") > 6 {
			return
		}
		want, err := path.Match(pattern, name)
		if err == nil && starMatch(pattern, name) != want {
			t.Errorf("%q and %q: %v, not %v", pattern, name, !want, want)
		}
	})
}
