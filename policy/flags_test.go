package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	for _, c := range []struct {
		flags Flags
		urls  map[string]bool
	}{
		{Flags{}, map[string]bool{"https://a.test": false}},
		{Flags{Allow: []string{"a.test", "*.b.test"}}, map[string]bool{"https://a.test": true, "http://a.test": true, "https://x.b.test": true, "https://b.test": false, "https://a.test:8443": false, "tcp://a.test:443": false, "wss://a.test": false}},
		{Flags{Allow: []string{"a.test:5432"}}, map[string]bool{"tcp://a.test:5432": true, "https://a.test:5432": true, "wss://a.test:5432": true, "https://a.test": false}},
		{Flags{Allow: []string{"a.test:443"}}, map[string]bool{"tcp://a.test:443": false, "https://a.test": true, "http://a.test": false}},
		{Flags{Allow: []string{"tcp://a.test:443", "http://b.test:8080/", "wss://c.test", "https://d.test:22"}},
			map[string]bool{"tcp://a.test:443": true, "http://b.test:8080": true, "https://b.test:8080": false, "tcp://b.test:8080": false, "wss://c.test": true, "https://c.test": true, "ws://c.test": false, "tcp://d.test:22": false}},
		{Flags{Allow: []string{"192.0.2.1", "10.0.0.0/8", "[2001:db8::1]:8080", "::1"}}, map[string]bool{"https://192.0.2.1": true, "https://10.2.3.4": true, "http://[2001:db8::1]:8080": true, "http://[2001:db8::1]": false, "http://[::1]": true, "https://a.test": false}},
		{Flags{Secrets: []string{"KEY@a.test", "KEY@b.test:8443"}}, map[string]bool{"https://a.test": true, "https://b.test:8443": true, "tcp://b.test:8443": false}},
		{Flags{Allow: []string{"b.test:8443"}, Secrets: []string{"KEY@b.test:8443"}}, map[string]bool{"https://b.test:8443": true, "tcp://b.test:8443": false}},
		{Flags{Profiles: []string{"model-provider/openai"}, Secrets: []string{"KEY@api.openai.com"}}, map[string]bool{"https://api.openai.com/v1/models": true, "https://api.openai.com/v1/files": false, "https://api.openai.com/": false}},
		{Flags{Allow: []string{"a.test", "a.test", "A.test."}}, map[string]bool{"https://a.test": true}},
	} {
		p, err := FromFlags(c.flags)
		if err != nil {
			t.Errorf("%+v: %v", c.flags, err)
			continue
		}
		for url, want := range c.urls {
			if d := verdict(t, p, "GET", url); (d.Verdict == Allow) != want {
				t.Errorf("%+v, %s: %s", c.flags, url, d.Why)
			}
		}
	}
	p, err := FromFlags(Flags{Secrets: []string{"KEY@a.test", "KEY@b.test"}})
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Secrets()["KEY"]; s == nil || s.Env != "KEY" || s.Name != "KEY" || !slices.Equal(s.Hosts, []string{"a.test", "b.test"}) || !slices.Equal(p.Rules()[0].Secrets, []string{"KEY"}) {
		t.Errorf("%+v", s)
	}
	for _, bad := range []Flags{
		{Allow: []string{""}}, {Allow: []string{"*"}}, {Allow: []string{"*.com"}}, {Allow: []string{"ftp://a.test"}}, {Allow: []string{"tcp://a.test"}}, {Allow: []string{"a.test/x"}}, {Allow: []string{"0.0.0.0/0"}}, {Allow: []string{"10.0.0.1/8"}},
		{Allow: []string{"169.254.169.254"}}, {Allow: []string{"metadata.google.internal"}}, {Allow: []string{"a.test:99999"}}, {Allow: []string{"https://u@a.test"}}, {Profiles: []string{"nothing"}}, {Profiles: []string{"git-read@*.com"}}, {Profiles: []string{"@a.test"}},
		{Secrets: []string{"KEY"}}, {Secrets: []string{"@a.test"}}, {Secrets: []string{"A B@a.test"}}, {Secrets: []string{"KEY@*.com"}}, {Secrets: []string{"KEY@192.0.2.1"}}, {Secrets: []string{"KEY@"}},
	} {
		if p, err := FromFlags(bad); err == nil {
			t.Errorf("%+v was taken: %s", bad, p.Canonical())
		}
	}
	// What a URL is, and a range is not.
	for _, s := range []string{"https://a.test/x", "a.test/x"} {
		if _, err := FromFlags(Flags{Allow: []string{s}}); err == nil || !strings.Contains(err.Error(), "has a path: write the host alone") {
			t.Errorf("--allow %s: %v", s, err)
		}
	}
}

func TestMerge(t *testing.T) {
	base := mustParse(t, "{hosts: [a.test], methods: [GET]}", "{hosts: [bad.test], action: deny}")
	p, err := Merge(base, Flags{Allow: []string{"a.test", "bad.test", "b.test"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, url string
		want        Verdict
		rule        string
	}{
		{"GET", "https://a.test/", Allow, "egress[0]"}, {"POST", "https://a.test/", Allow, "--allow a.test"}, {"GET", "https://bad.test/", Deny, "egress[1]"}, {"GET", "https://b.test/", Allow, "--allow b.test"},
	} {
		if d := verdict(t, p, c.method, c.url); d.Verdict != c.want || d.Rule.Name != c.rule {
			t.Errorf("%s %s: %s by %s", c.method, c.url, d.Verdict, d.Rule.Name)
		}
	}
	if len(base.Rules()) != 2 || verdict(t, base, "GET", "https://b.test/").Verdict != Deny {
		t.Error("the policy itself was changed")
	}
	sealed, err := Parse([]byte("version: 1\nsealed: true"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(sealed, Flags{Allow: []string{"a.test"}}); err == nil {
		t.Error("a sealed policy was widened")
	}
	if same, err := Merge(sealed, Flags{}); err != nil || same.Digest() != sealed.Digest() {
		t.Errorf("%v", err)
	}
	bound, err := Parse([]byte("version: 1\nsecrets: {KEY: {hosts: [a.test], env: KEY}}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(bound, Flags{Secrets: []string{"KEY@evil.test"}}); err == nil {
		t.Error("a flag bound the document's secret to another host")
	}
}

// TestProfiles: what each profile is for works, and nothing that writes does.
func TestProfiles(t *testing.T) {
	for profile, c := range map[string]struct{ allow, deny []string }{
		"registry-readonly/npm": {
			[]string{"GET https://registry.npmjs.org/left-pad", "GET https://registry.npmjs.org/@babel%2fcore", "GET https://registry.npmjs.org/@babel/core", "HEAD https://registry.npmjs.org/left-pad/-/left-pad-1.3.0.tgz",
				"GET https://registry.npmjs.org/@babel/core/-/core-7.0.0-beta.1.tgz", "GET https://registry.npmjs.org/-/package/left-pad/dist-tags", "GET https://registry.npmjs.org/left-pad/1.0.0"},
			[]string{"PUT https://registry.npmjs.org/left-pad", "POST https://registry.npmjs.org/-/npm/v1/security/audits", "GET https://registry.npmjs.org/left-pad?x=data", "PUT https://registry.npmjs.org/-/user/org.couchdb.user:a", "GET https://registry.npmjs.org/-/whoami",
				"DELETE https://registry.npmjs.org/left-pad/-rev/1", "GET https://registry.npmjs.org/-/v1/search?text=x", "GET https://pypi.org/simple/a/", "GET https://registry.npmjs.org/a%20b", "GET https://registry.npmjs.org/a/b/c/d/e"}},
		"registry-readonly/pypi": {
			[]string{"GET https://pypi.org/simple/requests/", "GET https://pypi.org/simple/", "GET https://pypi.org/pypi/requests/json", "GET https://files.pythonhosted.org/packages/ab/cd/0123abcd/requests-2.0.0-py3-none-any.whl",
				"GET https://files.pythonhosted.org/packages/ab/cd/0123abcd/requests-2.0.0-py3-none-any.whl.metadata", "GET https://files.pythonhosted.org/packages/source/r/requests/requests-2.0.0.tar.gz"},
			[]string{"POST https://upload.pypi.org/legacy/", "POST https://pypi.org/legacy/", "GET https://pypi.org/simple/requests/?x=1", "GET https://pypi.org/search/?q=x", "GET https://pypi.org/manage/"}},
		"registry-readonly/go": {
			[]string{"GET https://proxy.golang.org/github.com/!burnt!sushi/toml/@v/list", "GET https://proxy.golang.org/golang.org/x/net/@v/v0.1.0.zip", "GET https://proxy.golang.org/golang.org/x/net/@latest", "GET https://proxy.golang.org/gopkg.in/yaml.v3/@v/v3.0.0-20200313102051-9f266ea9e77c.mod",
				"GET https://proxy.golang.org/github.com/a/b/@v/v2.0.0+incompatible.info", "GET https://sum.golang.org/lookup/golang.org/x/net@v0.1.0", "GET https://sum.golang.org/tile/8/0/x123/456", "GET https://sum.golang.org/tile/8/data/x001/234.p/5", "GET https://sum.golang.org/latest",
				"GET https://proxy.golang.org/sumdb/sum.golang.org/supported", "GET https://proxy.golang.org/sumdb/sum.golang.org/lookup/golang.org/x/net@v0.1.0"},
			[]string{"POST https://proxy.golang.org/a/@v/list", "GET https://proxy.golang.org/a/@v/list?x=1", "GET https://proxy.golang.org/"}},
		"registry-readonly/crates": {
			[]string{"GET https://index.crates.io/config.json", "GET https://index.crates.io/se/rd/serde", "GET https://index.crates.io/3/a/abc", "GET https://index.crates.io/1/a", "GET https://static.crates.io/crates/serde/serde-1.0.0.crate", "GET https://static.crates.io/crates/serde/1.0.0/download", "GET https://crates.io/api/v1/crates/serde/1.0.0/download"},
			[]string{"PUT https://crates.io/api/v1/crates/new", "GET https://crates.io/api/v1/crates?q=x", "DELETE https://crates.io/api/v1/crates/serde/1.0.0/yank"}},
		"registry-readonly/debian": {
			[]string{"GET http://deb.debian.org/debian/dists/bookworm/InRelease", "GET https://deb.debian.org/debian/pool/main/g/gcc-12/g%2b%2b-12_12.2.0-14_amd64.deb", "GET http://security.debian.org/debian-security/dists/bookworm-security/main/binary-amd64/by-hash/SHA256/0a0b",
				"GET http://deb.debian.org/debian/pool/main/libs/libsigc%2b%2b-2.0/libsigc%2b%2b-2.0-0v5_2.12.0-1~deb12_amd64.deb"},
			[]string{"POST http://deb.debian.org/debian/dists/x", "GET http://deb.debian.org/debian/dists/x?y=z", "GET http://deb.debian.org/cgi/x"}},
		"registry-readonly/oci": {
			[]string{"GET https://registry-1.docker.io/v2/", "HEAD https://registry-1.docker.io/v2/library/alpine/manifests/3.20", "GET https://ghcr.io/v2/a/b/blobs/sha256:" + zeros, "GET https://auth.docker.io/token?service=registry.docker.io&scope=repository:library/alpine:pull"},
			[]string{"POST https://registry-1.docker.io/v2/a/blobs/uploads/", "PUT https://registry-1.docker.io/v2/a/manifests/latest", "PATCH https://ghcr.io/v2/a/blobs/uploads/1", "DELETE https://ghcr.io/v2/a/manifests/latest", "POST https://auth.docker.io/token", "GET https://registry-1.docker.io/v2/_catalog?x=1", "GET https://auth.docker.io/token?account=a"}},
		"git-read": {
			[]string{"GET https://github.com/a/b.git/info/refs?service=git-upload-pack", "POST https://github.com/a/b.git/git-upload-pack", "GET https://gitlab.com/g/sub/p.git/info/refs?service=git-upload-pack"},
			[]string{"GET https://github.com/a/b.git/info/refs?service=git-receive-pack", "POST https://github.com/a/b.git/git-receive-pack", "POST https://github.com/a/b.git/info/refs?service=git-upload-pack", "GET https://github.com/a/b.git/info/refs?service=git-upload-pack&service=git-receive-pack",
				"POST https://github.com/a/b.git/info/lfs/objects/batch", "GET https://github.com/a/b", "GET https://api.github.com/repos/a/b", "GET http://github.com/a/b.git/info/refs?service=git-upload-pack"}},
		"model-provider": {nil, []string{"POST https://api.openai.com/v1/responses", "POST https://api.anthropic.com/v1/messages", "POST https://api.anthropic.com/v1/files"}},
	} {
		p, err := FromFlags(Flags{Profiles: []string{profile}})
		if err != nil {
			t.Errorf("%s: %v", profile, err)
			continue
		}
		expectAll(t, p, profile, c.allow, c.deny)
	}
	keys, err := FromFlags(Flags{Profiles: []string{"model-provider"}, Secrets: []string{"O@api.openai.com", "A@api.anthropic.com"}})
	if err != nil {
		t.Fatal(err)
	}
	expectAll(t, keys, "model-provider with keys",
		[]string{"POST https://api.openai.com/v1/chat/completions", "POST https://api.openai.com/v1/responses", "GET https://api.openai.com/v1/models", "POST https://api.anthropic.com/v1/messages?beta=true", "POST https://api.anthropic.com/v1/messages/count_tokens", "GET https://api.anthropic.com/v1/models?limit=5"},
		[]string{"POST https://api.openai.com/v1/files", "GET https://api.openai.com/v1/files", "POST https://api.openai.com/v1/batches", "POST https://api.anthropic.com/v1/messages/batches", "POST https://api.anthropic.com/v1/files", "GET https://api.anthropic.com/v1/organizations/x", "POST https://api.openai.com/v1/uploads", "POST http://api.openai.com/v1/responses"})
	// Each is for a mirror too, on its own port, without its own host.
	for _, pr := range Profiles() {
		p, err := FromFlags(Flags{Profiles: []string{pr.Name + "@mirror.test:8443"}, Secrets: []string{"K@mirror.test:8443"}})
		if err != nil || pr.Description == "" {
			t.Errorf("%+v: %v", pr, err)
			continue
		}
		for _, r := range p.Rules() {
			if !slices.Equal(patternStrings(r.hosts), []string{"mirror.test:8443"}) || r.Action != Allow || r.methods == nil || r.paths == nil || r.query == nil || r.Description == "" {
				t.Errorf("%s: %s", pr.Name, r.describe())
			}
		}
	}
	mirror, err := FromFlags(Flags{Profiles: []string{"registry-readonly/npm@mirror.test:8443"}})
	if err != nil {
		t.Fatal(err)
	}
	expectAll(t, mirror, "a mirror", []string{"GET https://mirror.test:8443/left-pad", "GET http://mirror.test:8443/left-pad"}, []string{"PUT https://mirror.test:8443/left-pad", "GET https://mirror.test/left-pad", "GET https://registry.npmjs.org/left-pad"})
}

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

func expectAll(t *testing.T, p *Policy, what string, allow, deny []string) {
	t.Helper()
	for want, list := range map[Verdict][]string{Allow: allow, Deny: deny} {
		for _, s := range list {
			var method, url string
			for i := range s {
				if s[i] == ' ' {
					method, url = s[:i], s[i+1:]
					break
				}
			}
			if d := verdict(t, p, method, url); d.Verdict != want {
				t.Errorf("%s: %s is %s: %s", what, s, d.Verdict, d.Why)
			}
		}
	}
}
