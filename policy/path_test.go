package policy

import (
	"strings"
	"testing"
)

// TestCanonicalPath has the path tricks of H6.
func TestCanonicalPath(t *testing.T) {
	for in, want := range map[string]string{ // "" is an error
		"": "/", "/": "/", "/a/b": "/a/b", "/a/": "/a/", "/a//b": "/a/b", "//evil.example/x": "/evil.example/x", "/a/./b": "/a/b", "/a/.": "/a/", "/a/b/..": "/a/",
		"/v1/%2e%2e/admin": "/admin", "/v1/%2E./admin": "/admin", "/v1/../admin": "/admin", "/v1//../admin": "/admin", "/a/b/../../c": "/c", "/...": "/...", "/.a": "/.a",
		"/..": "", "/a/../..": "", "/%2e%2e": "", "/a/../../b": "",
		"/%41%7e%2d": "/A~-", "/%c3%a9": "/%C3%A9", "/\u00e9": "/%C3%A9", "/a%20b": "/a%20b", "/a b": "", "/a?b": "", "/a#b": "", "/%3f": "/%3F", "/a\"<>^`{|}": "/a%22%3C%3E%5E%60%7B%7C%7D",
		"/@scope%2fname": "/@scope%2Fname", "/a%2F..%2Fb": "", "/a%2f": "", "/%2fa": "", "/%2f": "", "/a%2f%2fb": "", "/a%2f.%2fb": "", "/a%2f%2e%2e/b": "",
		"/v1/a%2f..": "", "/..%2fa": "", "/a\\b": "", "/a%5cb": "", "/..%5cb": "", "/%00": "", "/a%00.json": "", "/a%0d%0ab": "", "/a\x00": "", "/a\n": "", "/\x7f": "", "/%7f": "",
		"/%252e%252e/a": "", "/%25%32e": "", "/%2525": "", "/100%25": "/100%25", "/100%25/x": "/100%25/x", "/%": "", "/%2": "", "/%zz": "", "/a%u002e": "",
		"/%c0%af": "", "/%c0%ae%c0%ae/": "", "/%ff": "", "/\xff": "", "/%ed%a0%80": "",
		"/a;x=1/b": "/a;x=1/b", "/..;/a": "", "/.;x/a": "", "/;x": "", "/%2e%2e;/a": "", "/a%3bx": "", "/a/..;x=1/b": "",
		"a": "", "http://a/": "", "*": "", "/a+b": "/a+b", "/a%2Bb": "/a%2Bb", "/a:b@c!$&'()*,=": "/a:b@c!$&'()*,=",
		"/" + strings.Repeat("a", maxPath): "",
	} {
		got, err := CanonicalPath(in)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q was taken as %q", in, got)
		case want != "" && (err != nil || got != want):
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "/a/../b", "/%2e%2e", "/a%2fb", "/%25%32e", "/a;b", "/\u00e9//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := CanonicalPath(s)
		if err != nil {
			return
		}
		again, err := CanonicalPath(p)
		if err != nil && len(p) <= maxPath || err == nil && again != p {
			t.Fatalf("%q: %q becomes %q, %v", s, p, again, err)
		}
		for seg := range strings.SplitSeq(p[1:], "/") {
			if seg == "." || seg == ".." {
				t.Fatalf("%q: %q has a dot segment", s, p)
			}
		}
		if strings.Contains(p, "//") || strings.ContainsAny(p, "\\\x00\r\n ?#") {
			t.Fatalf("%q: %q", s, p)
		}
		// Whatever is read, only what the wildcard's text allows matches.
		everything, _ := parsePathPattern("/**")
		if everything.matches(p) == strings.Contains(p, "%2F") {
			t.Fatalf("%q: /** and %q", s, p)
		}
	})
}

func TestPathPatterns(t *testing.T) {
	for pattern, cases := range map[string]map[string]bool{
		"/a":                   {"/a": true, "/a/": false, "/a/b": false, "/A": false, "/": false},
		"/":                    {"/": true, "/a": false},
		"/a/":                  {"/a/": true, "/a": false},
		"/a/*":                 {"/a/b": true, "/a/": false, "/a": false, "/a/b/c": false, "/a/b/": false, "/a/b%2Fc": false},
		"/a/**":                {"/a/b": true, "/a/b/c": true, "/a/": true, "/a/b/": true, "/a": false, "/ab": false, "/a/b%2Fc": false, "/a/b/c%2Fd": false},
		"/**":                  {"/": true, "/a/b": true, "/a/": true},
		"/a/**/z":              {"/a/b/z": true, "/a/b/c/z": true, "/a/z": false, "/a/z/z": true, "/a/b/z/": false},
		"/**/x/**/y":           {"/a/x/b/y": true, "/x/x/x/y": true, "/a/x/y": false},
		"/p/*.tgz":             {"/p/a.tgz": true, "/p/.tgz": true, "/p/a.tgz.exe": false, "/p/a%2Fb.tgz": false},
		"/p/a*b*c":             {"/p/abc": true, "/p/axbxc": true, "/p/ab": false, "/p/acb": false, "/p/abbc": true},
		"/p/*x*":               {"/p/x": true, "/p/axb": true, "/p/y": false, "/p/x%2Fy": false, "/p/y%2Fx": false},
		"/@*%2F*":              {"/@a%2Fb": true, "/@a/b": false, "/@a%2Fb%2Fc": false},
		"/%61":                 {"/a": true},
		"/{name}/-/{file}":     {"/left-pad/-/left-pad-1.0.0.tgz": true, "/left-pad/-/": false, "/-x/-/a": false, "/a/-/.b": false},
		"/{scoped}":            {"/@a%2Fb": true, "/@a/b": false, "/a%2Fb": false, "/@a%2F..": false},
		"/{scope}/{name}":      {"/@a/b": true, "/a/b": false},
		"/{go...}/@v/list":     {"/github.com/!burnt!sushi/toml/@v/list": true, "/@v/list": false, "/a/@v/@v/list": false, "/a/../@v/list": false},
		"/lookup/{go@version}": {"/lookup/a@v1.0.0": true, "/lookup/a": false},
		"/b/{digest}":          {"/b/sha256:" + strings.Repeat("0a", 32): true, "/b/sha256:0a": false, "/b/latest": false},
		"/m/{reference}":       {"/m/latest": true, "/m/sha256:" + strings.Repeat("0a", 32): true, "/m/a/b": false},
		"/x/{int}":             {"/x/12": true, "/x/1a": false, "/x/" + strings.Repeat("1", 40): false},
		"/x/{hex}/{version}":   {"/x/0af/1.0~rc1": true, "/x/0ag/1": false, "/x/0a/..1": false},
	} {
		p, err := parsePathPattern(pattern)
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for path, want := range cases {
			if got := p.matches(path); got != want {
				t.Errorf("%s and %s: %v", pattern, path, got)
			}
		}
		if s := p.sample(); !p.matches(s) {
			t.Errorf("%s: its sample %s does not fit", pattern, s)
		}
	}
	for _, bad := range []string{"", "a", "/a**", "/{nothing}", "/{name", "/x{name}", "/a//b", "/..", "/.", "/a b", "/%2e%2e", "/a\\b", "/%zz", "/" + strings.Repeat("a/", 70), "/a?b", "/{name....}", "/*%2F..%2F*", "/%2F"} {
		if p, err := parsePathPattern(bad); err == nil {
			t.Errorf("%q was taken: %+v", bad, p)
		}
	}
}

// TestPathPatternIsFast holds a pattern that would be slow if it were tried in
// every way against a path made for it.
func TestPathPatternIsFast(t *testing.T) {
	p, err := parsePathPattern("/" + strings.Repeat("**/a/", 25) + "b")
	if err != nil {
		t.Fatal(err)
	}
	path := "/" + strings.Repeat("a/", maxPath/2-1) + "a"
	for range 20 { // seconds each, tried in every way: more than anybody waits for
		if p.matches(path) {
			t.Fatal("it does not end in b")
		}
	}
}
