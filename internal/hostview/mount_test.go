package hostview

import (
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

func TestParseMount(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Mount
	}{
		{"/data", Mount{"/data", "/data", false}},
		{"/data:ro", Mount{"/data", "/data", false}},
		{"/data:rw", Mount{"/data", "/data", true}},
		{"/data:/in", Mount{"/data", "/in", false}},
		{"/data:/in:rw", Mount{"/data", "/in", true}},
		{"data", Mount{"/place/dir/data", "/place/dir/data", false}},
		{"../x/./y/", Mount{"/place/x/y", "/place/x/y", false}},
		{".:/in:ro", Mount{"/place/dir", "/in", false}},
		{"~/data:/in", Mount{"/home/u/data", "/in", false}},
		{"~", Mount{"/home/u", "/home/u", false}},
		{`/a\:b\\c:/in`, Mount{`/a:b\c`, "/in", false}},
		{"/ro:/rw", Mount{"/ro", "/rw", false}},
		{"ro", Mount{"/place/dir/ro", "/place/dir/ro", false}},
		{"/a b/\xff:/in", Mount{"/a b/\xff", "/in", false}},
	} {
		got, err := ParseMount(tt.in, "/place/dir", "/home/u")
		if err != nil || got != tt.want {
			t.Errorf("%q gives %+v, %v; not %+v", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"", ":", ":/in", "/data:in", "/data:/in:rx", "/data:/in:ro:rw", "/data::", "/data:", "/a\x00b", "/data:/in:", "~x/y:z"} {
		if got, err := ParseMount(in, "/place/dir", "/home/u"); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%q gives %+v, %v; not a usage error", in, got, err)
		}
	}
}

func FuzzParseMount(f *testing.F) {
	for _, s := range []string{"/data", "/data:/in:rw", `/a\:b:ro`, "~/x", "::", "../..:/.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMount(s, "/place", "/home/u")
		if err != nil {
			return
		}
		if !strings.HasPrefix(m.Source, "/") || !strings.HasPrefix(m.Target, "/") || strings.ContainsRune(m.Source+m.Target, 0) ||
			slices.Contains(strings.Split(m.Source+m.Target, "/"), "..") {
			t.Errorf("%q gives %+v", s, m)
		}
	})
}

func TestCheckMount(t *testing.T) {
	root := plant(t, debian+`
		data/set/x = x
		dev/sda = disk
		proc/1/environ = CANARY
		sys/kernel/x = x
		var/run -> ../run
		var/tmp/x = x
		home/u/.ssh/id_rsa = CANARY
		home/u/.config/gh/hosts.yml = CANARY
		home/u/.config/app/x = x
		home/u/data/x = x
		home/u/src/x = x
		home/u/.local/share/bailey/trust/x = CANARY
		home/u/innocent -> /run
		home/u/sneaky -> ../../etc/shadow
		home/other/shared/x = x
		opt/x/y = z`)
	plantSocket(t, root, "run/containerd/containerd.sock")
	plantSocket(t, root, "data/socks/agent.sock")
	const ok = bailey.Code("")
	const rootLike, private = bailey.CodeHostRootEquivalent, bailey.CodeMountRefused
	h := Host{Root: root, Home: "/home/u", BaileyHome: "/home/u/.local/share/bailey"}
	for _, tt := range []struct {
		mount string
		code  bailey.Code
		knows bailey.Code // with --i-understand
	}{
		{"/data/set", ok, ok},
		{"/data/set:rw", ok, ok},
		{"/data/set:/anywhere", ok, ok},
		{"/home/u/data:rw", ok, ok},
		{"/home/u/.config/app", ok, ok},
		{"/home/other/shared", ok, ok},
		{"/usr:/host/usr", ok, ok},
		{"/opt/x", ok, ok},
		{"/var/tmp:/x", ok, ok},
		{"/etc/ssl/certs:/c", ok, ok},
		{"/:/host", rootLike, ok},
		{"/proc:/x", rootLike, ok},
		{"/proc/1:/x", rootLike, ok},
		{"/sys:/x", rootLike, ok},
		{"/dev:/x", rootLike, ok},
		{"/dev/sda:/x", rootLike, ok},
		{"/run:/x", rootLike, ok},
		{"/var/run:/x", rootLike, ok},
		{"/run/containerd/containerd.sock:/x", rootLike, ok},
		{"/var/run/containerd/containerd.sock:/x", rootLike, ok},
		{"/data/socks/agent.sock:/x", rootLike, ok},
		{"/data/socks:/x", rootLike, ok},
		{"/home/u/innocent:/x", rootLike, ok},
		{"/home/u/sneaky:/x", rootLike, ok},
		{"/etc:/x", rootLike, ok},
		{"/etc/shadow:/x", rootLike, ok},
		{"/etc/ssh:/x", rootLike, ok},
		{"/var:/x", rootLike, ok},
		{"/var/lib:/x", rootLike, ok},
		{"/var/lib/docker:/x", rootLike, ok},
		{"/boot:/x", rootLike, ok},
		{"/usr:/x:rw", rootLike, ok},
		{"/usr/local/bin:/x:rw", rootLike, ok},
		{"/bin:/x:rw", rootLike, ok},
		{"/opt/x:/x:rw", rootLike, ok},
		{"/home:/x", private, ok},
		{"/home/u:/x", private, ok},
		{"/home/other:/x", private, ok},
		{"/root:/x", private, ok},
		{"/home/u/.ssh:/x", private, ok},
		{"/home/u/.ssh/id_rsa:/x", private, ok},
		{"/home/u/.config:/x", private, ok},
		{"/home/u/.config/gh:/x", private, ok},
		{"/home/u/.local/share/bailey:/x", private, ok},
		{"/home/u/.local/share/bailey/trust:/x", private, ok},
		{"/home/u/.local:/x", private, ok},
		{"/nowhere:/x", bailey.CodeNotFound, bailey.CodeNotFound},
		{"/data/set:/", bailey.CodeUsage, bailey.CodeUsage},
		{"/data/set:/tmp", bailey.CodeUsage, bailey.CodeUsage},
		{"/data/set:/tmp/x", ok, ok},
		{"/data/set:/proc/x", bailey.CodeUsage, bailey.CodeUsage},
		{"/data/set:/dev", bailey.CodeUsage, bailey.CodeUsage},
		{"/data/set:/x/../sys/fs", bailey.CodeUsage, bailey.CodeUsage},
	} {
		m, err := ParseMount(tt.mount, "/", "/home/u")
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckMount(h, m, false); bailey.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, not %q", tt.mount, err, tt.code)
		}
		if err := CheckMount(h, m, true); bailey.CodeOf(err) != tt.knows {
			t.Errorf("%s with --i-understand: %v, not %q", tt.mount, err, tt.knows)
		}
	}
}

func TestCheckWorkspace(t *testing.T) {
	root := plant(t, debian+`
		home/u/.ssh/config.d/
		home/u/.config/app/
		home/u/.config/gh/hosts.yml = x
		home/u/Documents/proj/
		home/u/link -> .config/gh
		home/u/home -> .
		var/lib/bailey/runs/`)
	h := Host{Root: root, Home: "/home/u", BaileyHome: "/var/lib/bailey"}
	const refused = bailey.CodeWorkspaceRefused
	for dir, code := range map[string]bailey.Code{
		"/home/u/proj": "", "/home/u/.config/app": "", "/home/u/Documents/proj": "", "/home/u/Documents": "",
		"/home": refused, "/home/u": refused, "/home/u/": refused, "/home/u/link": refused, "/home/u/home": refused, "/home/other": refused,
		"/home/u/.ssh": refused, "/home/u/.ssh/config.d": refused, "/home/u/.config": refused, "/home/u/.config/gh": refused,
		"/var/lib/bailey": refused, "/var/lib/bailey/runs": refused, "/var/lib": refused, "/": refused,
		"/nowhere": bailey.CodeNotFound, "/home/u/proj/main.go": bailey.CodeNotFound, "proj": bailey.CodeNotFound,
	} {
		if err := CheckWorkspace(h, dir, false); bailey.CodeOf(err) != code {
			t.Errorf("%s: %v, not %q", dir, err, code)
		}
		if err := CheckWorkspace(h, dir, true); err != nil {
			t.Errorf("%s with --i-understand: %v", dir, err)
		}
	}
}

// TestOverlaps is T41: rules that meet are put in order, and none stops the
// sandbox from starting.
func TestOverlaps(t *testing.T) {
	root := plant(t, debian+`
		home/u/.pyenv/bin/pyenv
		home/u/.pyenv/shims/python
		home/u/.pyenv/versions/x = x
		home/u/proj/sub/deep/x = x
		data/a/b/c/x = x
		data/file = x
		usr/share/thing/x = x
		home/u/mylink -> /home/u/proj`)
	for _, tt := range []struct {
		name   string
		mounts []string
		knows  bool
		has    []string
		hasNo  []string
		fails  bailey.Code
	}{
		{name: "child before parent", mounts: []string{"/data/a/b", "/data/a"}, has: []string{"bind /data/a"}, hasNo: []string{"/data/a/b"}},
		{name: "read-only below writable", mounts: []string{"/data/a:rw", "/data/a/b:ro"}, has: []string{"bind /data/a rw", "bind /data/a/b"}},
		{name: "writable below read-only", mounts: []string{"/data/a:ro", "/data/a/b:rw"}, has: []string{"bind /data/a", "bind /data/a/b rw"}},
		{name: "three deep", mounts: []string{"/data/a/b/c:rw", "/data/a", "/data/a/b:rw", "/data:rw"},
			has: []string{"bind /data rw", "bind /data/a", "bind /data/a/b rw"}, hasNo: []string{"/data/a/b/c"}},
		{name: "same twice", mounts: []string{"/data/a", "/data/a"}, has: []string{"bind /data/a"}},
		{name: "same path, both modes", mounts: []string{"/data/a:rw", "/data/a:ro"}, has: []string{"bind /data/a"}},
		{name: "same path, both modes, other order", mounts: []string{"/data/a:ro", "/data/a:rw"}, has: []string{"bind /data/a"}},
		{name: "two sources, one target", mounts: []string{"/data/a:/x", "/data/a/b:/x"}, has: []string{"bind /x from /data/a/b"}},
		{name: "over a toolchain", mounts: []string{"/home/u/.pyenv:rw"}, has: []string{"bind /home/u/.pyenv rw"}},
		{name: "below a toolchain", mounts: []string{"/home/u/.pyenv/versions:rw"}, has: []string{"bind /home/u/.pyenv", "bind /home/u/.pyenv/versions rw"}},
		{name: "above a toolchain, elsewhere", mounts: []string{"/data/a:/home/u/.config/x:rw"}, has: []string{"bind /home/u/.config/x from /data/a rw", "dir /home/u/.config"}},
		{name: "below the workspace", mounts: []string{"/home/u/proj/sub:ro"}, has: []string{"workspace /home/u/proj", "bind /home/u/proj/sub"}},
		{name: "other source below the workspace", mounts: []string{"/data/a:/home/u/proj/sub:ro"}, has: []string{"bind /home/u/proj/sub from /data/a"}},
		{name: "through a link inside", mounts: []string{"/data/a:/bin/../lib/x86_64-linux-gnu"}, has: []string{"bind /usr/lib/x86_64-linux-gnu from /data/a"}},
		{name: "over a generated file", mounts: []string{"/data/file:/etc/hosts"}, has: []string{"bind /etc/hosts from /data/file"}},
		{name: "in the sandbox's tmp", mounts: []string{"/data/a:/tmp/a/b"}, has: []string{"bind /tmp/a/b from /data/a", "dir /tmp/a"}, hasNo: []string{"/tmp"}},
		{name: "the system elsewhere", mounts: []string{"/usr:/host/usr"}, has: []string{"bind /host/usr from /usr", "mask /host/usr/etc/npmrc"}},
		{name: "nothing to mount on", mounts: []string{"/data/a:/usr/share/new"}, fails: bailey.CodeUsage},
		{name: "nothing in the workspace to mount on", mounts: []string{"/data/a:/home/u/proj/new"}, fails: bailey.CodeUsage},
		{name: "file over folder", mounts: []string{"/data/file:/usr/share/thing"}, fails: bailey.CodeUsage},
		{name: "below a generated file", mounts: []string{"/data/file:/etc/hosts/x"}, fails: bailey.CodeUsage},
		{name: "over the home", mounts: []string{"/data/a:/home/u"}, fails: bailey.CodeUsage},
		{name: "over what holds the home", mounts: []string{"/data/a:/home"}, fails: bailey.CodeUsage},
		{name: "over the workspace", mounts: []string{"/data/a:/home/u/proj"}, fails: bailey.CodeUsage},
		{name: "the docker socket", mounts: []string{"/run/docker.sock"}, fails: bailey.CodeHostRootEquivalent},
		{name: "the run folder, understood", mounts: []string{"/run"}, knows: true, has: []string{"bind /run"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := inputFor(root, "/home/u/.pyenv/shims:/home/u/.pyenv/bin:/usr/bin")
			in.IUnderstand = tt.knows
			for _, s := range tt.mounts {
				m, err := ParseMount(s, "/", "/home/u")
				if err != nil {
					t.Fatal(err)
				}
				in.Mounts = append(in.Mounts, m)
			}
			if tt.fails != "" {
				if _, err := Compute(in); bailey.CodeOf(err) != tt.fails {
					t.Errorf("got %v, not %s", err, tt.fails)
				}
				return
			}
			v := compute(t, in)
			got := targets(v)
			for _, want := range tt.has {
				if !slices.Contains(got, want) {
					t.Errorf("no entry %q in\n%s", want, strings.Join(got, "\n"))
				}
			}
			for _, e := range v.Entries {
				if slices.Contains(tt.hasNo, e.Target) {
					t.Errorf("%s is there", describe(e))
				}
			}
		})
	}
}
