package hostview

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

// inputFor is an ordinary user's input on a planted host.
func inputFor(root, pathVar string) Input {
	return Input{
		Root: root, Home: "/home/u", BaileyHome: "/home/u/.local/share/bailey", UID: 1000, GID: 1000, Username: "u",
		MachineID: strings.Repeat("0", 32), Workspace: "/home/u/proj",
		Env: []string{"PATH=" + pathVar, "HOME=/home/u", "SHELL=/bin/bash", "LANG=C.UTF-8"},
	}
}

func compute(t *testing.T, in Input) View {
	t.Helper()
	v, err := Compute(in)
	if err != nil {
		t.Fatal(err)
	}
	checkShape(t, in.Root, v)
	again, err := Compute(in)
	if err != nil || !slices.Equal(v.Env, again.Env) || !slices.Equal(targets(v), targets(again)) || !slices.Equal(v.Notes, again.Notes) {
		t.Errorf("the same input gives another view: %v", err)
	}
	return v
}

func targets(v View) []string {
	var s []string
	for _, e := range v.Entries {
		s = append(s, describe(e))
	}
	return s
}

// describe gives an entry in one line: KIND TARGET [from SOURCE|-> LINK] [cow|rw].
func describe(e Entry) string {
	s := string(e.Kind) + " " + e.Target
	if e.Source != "" && e.Source != e.Target {
		s += " from " + e.Source
	}
	if e.Kind == KindSymlink {
		s += " -> " + e.Link
	}
	switch {
	case e.CopyOnWrite:
		s += " cow"
	case e.Kind == KindBind && !e.ReadOnly:
		s += " rw"
	}
	return s
}

func env(v View, name string) string {
	for _, kv := range v.Env {
		if n, value, _ := strings.Cut(kv, "="); n == name {
			return value
		}
	}
	return "(unset)"
}

func hasNote(v View, subject, text string) bool {
	for _, n := range v.Notes {
		if n.Subject == subject && strings.Contains(n.Text, text) {
			return true
		}
	}
	return false
}

// canaries gives every secret that a process inside could read: what lies in
// the bound trees and is not covered, and the generated files.
func canaries(t *testing.T, root string, v View) []string {
	t.Helper()
	covered := map[string]bool{}
	for _, e := range v.Entries {
		covered[e.Target] = e.Kind == KindMask
	}
	var found []string
	read := func(b []byte, where string) {
		if strings.Contains(string(b), "CANARY") {
			found = append(found, string(b)+" through "+where)
		}
	}
	for _, e := range v.Entries {
		read(e.Content, e.Target)
		if e.Kind != KindBind {
			continue
		}
		base := root + e.Source
		err := filepath.WalkDir(base, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if covered[e.Target+strings.TrimPrefix(p, base)] {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			if d.Type()&(fs.ModeSocket|fs.ModeDevice) != 0 {
				found = append(found, "socket or device "+p+" through "+e.Target)
			}
			if d.Type().IsRegular() {
				b, err := os.ReadFile(p)
				if err != nil {
					return err
				}
				read(b, e.Target)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	return found
}

func TestHosts(t *testing.T) {
	const system = "/usr/local/bin:/usr/bin:/bin"
	tests := []struct {
		name  string
		tree  string
		path  string
		edit  func(*Input)
		has   []string // entries, as describe gives them
		hasNo []string // targets
		inner string   // PATH inside
		notes [][2]string
	}{
		{
			name: "Debian, merged usr", tree: debian, path: system + ":/usr/games",
			has: []string{"bind /usr", "symlink /bin -> usr/bin", "symlink /lib64 -> usr/lib64", "bind /etc/ld.so.cache", "bind /etc/ssl/certs",
				"bind /etc/alternatives", "symlink /etc/localtime -> /usr/share/zoneinfo/Etc/UTC", "symlink /etc/os-release -> ../usr/lib/os-release",
				"file /etc/passwd", "file /etc/machine-id", "home /home/u", "workspace /home/u/proj", "mask /usr/etc/npmrc",
				"mask /etc/java-17-openjdk/management/jmxremote.password"},
			hasNo: []string{"/etc/shadow", "/etc/ssh", "/etc/sudoers", "/etc/ld.so.preload", "/etc/ssl/private", "/etc/profile.d", "/etc/environment",
				"/etc/protocols", "/run", "/var", "/boot", "/srv", "/opt", "/root", "/mnt", "/home/other"},
			inner: system,
			notes: [][2]string{{"/etc/protocols", "not everybody"}},
		},
		{
			name: "Debian 11, not merged",
			tree: `
				bin/sh
				bin/bash
				sbin/ldconfig
				lib/x86_64-linux-gnu/libc.so.6
				lib32/libc.so.6
				lib64/ld-linux-x86-64.so.2
				usr/bin/env
				home/u/proj/`,
			path:  "/usr/bin:/bin:/sbin",
			has:   []string{"bind /bin", "bind /sbin", "bind /lib", "bind /lib32", "bind /lib64", "bind /usr"},
			inner: "/usr/bin:/bin:/sbin",
		},
		{
			name: "Fedora",
			tree: `
				bin -> usr/bin
				sbin -> usr/sbin
				usr/sbin -> bin
				lib64 -> usr/lib64
				usr/bin/bash
				usr/lib64/libc.so.6
				usr/local/bin/
				etc/ssl/certs -> ../pki/tls/certs
				etc/ssl/openssl.cnf -> /etc/pki/tls/openssl.cnf
				etc/pki/tls/openssl.cnf = cnf
				etc/pki/tls/certs/ca-bundle.crt -> /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem
				etc/pki/tls/private/host.key = CANARY-tlskey
				etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem = certs
				etc/pki/entitlement/1-key.pem = CANARY-entitlement
				etc/pki/nssdb/key4.db = CANARY-nss
				etc/crypto-policies/back-ends/opensslcnf.config = conf
				etc/fedora-release = Fedora
				etc/alternatives/java -> /usr/lib/jvm/java
				home/u/proj/`,
			path: "/usr/local/bin:/usr/bin:/usr/sbin",
			has: []string{"symlink /sbin -> usr/sbin", "bind /etc/ssl/certs from /etc/pki/tls/certs", "bind /etc/pki/tls/certs",
				"bind /etc/pki/ca-trust/extracted", "bind /etc/crypto-policies", "bind /etc/fedora-release"},
			hasNo: []string{"/etc/pki/tls/private", "/etc/pki/entitlement", "/etc/pki/nssdb", "/etc/pki"},
			inner: "/usr/local/bin:/usr/bin:/usr/sbin",
		},
		{
			name: "Fedora Silverblue: home, opt and usr/local are links",
			tree: `
				home -> var/home
				opt -> var/opt
				usr/local -> ../var/usrlocal
				bin -> usr/bin
				usr/bin/bash
				var/usrlocal/bin/tool
				var/opt/go/bin/go
				var/home/u/proj/
				var/home/u/.cargo/bin/cargo
				var/home/u/.ssh/id_rsa = CANARY-ssh`,
			path: "/home/u/.cargo/bin:/usr/local/bin:/opt/go/bin:/usr/bin",
			edit: func(in *Input) { in.Workspace = "/var/home/u/proj" },
			has: []string{"symlink /home -> var/home", "home /var/home/u", "workspace /var/home/u/proj", "bind /var/home/u/.cargo/bin",
				"bind /var/usrlocal", "bind /var/opt/go", "symlink /opt -> var/opt"},
			inner: "/home/u/.cargo/bin:/usr/local/bin:/opt/go/bin:/usr/bin",
		},
		{
			name: "NixOS",
			tree: `
				bin/sh -> /nix/store/aaa-bash/bin/bash
				usr/bin/env -> /nix/store/bbb-coreutils/bin/env
				nix/store/aaa-bash/bin/bash
				nix/store/bbb-coreutils/bin/env
				nix/store/sys2/sw -> /nix/store/path
				nix/store/path/bin/git
				nix/store/user/bin/hello
				nix/store/profile/bin/rg
				nix/var/nix/daemon-socket/socket = CANARY-nixdaemon
				nix/var/nix/profiles/per-user/u/profile -> /nix/store/profile
				run/current-system -> /nix/store/sys2
				run/wrappers/bin/sudo
				run/secrets/db = CANARY-sops
				etc/static -> /nix/store/etcdir
				nix/store/etcdir/ssl/certs/ca-bundle.crt = cert
				etc/ssl/certs/ca-bundle.crt -> /etc/static/ssl/certs/ca-bundle.crt
				etc/profiles/per-user/u -> /nix/store/user
				home/u/.nix-profile -> /home/u/.local/state/nix/profiles/profile
				home/u/.local/state/nix/profiles/profile -> profile-1-link
				home/u/.local/state/nix/profiles/profile-1-link -> /nix/store/profile
				home/u/proj/`,
			path: "/run/wrappers/bin:/home/u/.nix-profile/bin:/etc/profiles/per-user/u/bin:/run/current-system/sw/bin",
			has: []string{"bind /nix/store", "bind /bin", "symlink /run/current-system -> /nix/store/sys2", "symlink /etc/static -> /nix/store/etcdir",
				"symlink /etc/profiles/per-user/u -> /nix/store/user", "bind /etc/ssl/certs"},
			hasNo: []string{"/nix/var", "/run/secrets", "/run/wrappers"},
			inner: "/nix/store/profile/bin:/etc/profiles/per-user/u/bin:/run/current-system/sw/bin",
			notes: [][2]string{{"/run/wrappers/bin", "setuid"}, {"/home/u/.nix-profile/bin", "/nix/store/profile/bin"}},
		},
		{
			name: "Ubuntu with snap and WSL's Windows folders", tree: debian + `
				snap/bin/node -> /usr/bin/snap
				mnt/c/Windows/system32/cmd.exe
				usr/lib/wsl/lib/nvidia-smi`,
			path:  system + ":/snap/bin:/usr/lib/wsl/lib:/mnt/c/Windows/system32",
			hasNo: []string{"/snap", "/mnt"},
			inner: system + ":/usr/lib/wsl/lib",
			notes: [][2]string{{"/snap/bin", "snapd"}, {"/mnt/c/Windows/system32", "other disks"}},
		},
		{
			name: "odd parts of PATH", tree: debian + `
				0777 everybody/bin/ls
				0777 everybody/bin/
				01777 home/u/sticky/bin/
				home/u/proj/node_modules/.bin/eslint
				home/u/loop -> loop
				home/u/file
				home/u/here -> .`,
			path: ":" + system + "::relative/bin:.:/everybody/bin:/home/u/sticky/bin:/home/u/proj/node_modules/.bin:/home/u:/home/u/:/home:/:/home/u/here:" +
				"/home/u/loop:/home/u/file:/nowhere/bin:/usr/bin/../bin:/home/other/bin:/tmp/x",
			hasNo: []string{"/everybody/bin", "/home/u/sticky/bin", "/home/other", "/home/other/bin"},
			inner: system + ":/home/u/proj/node_modules/.bin",
			notes: [][2]string{{"PATH", "empty part"}, {"PATH", `"relative/bin"`}, {"/everybody/bin", "everybody"}, {"/home/u/sticky/bin", "everybody"},
				{"/home/u/proj/node_modules/.bin", "in the workspace"}, {"/home/u", "home folder"}, {"/", "home folder"}, {"/home/u/here", "home folder"},
				{"/home/other/bin", "another user"}},
		},
		{
			name: "opt by PATH only", tree: debian + `
				opt/node/bin/node
				opt/node/lib/x = lib
				opt/secret/data = CANARY-opt
				opt/linked/bin/tool
				opt/linked/share/x = x
				usr/local/bin/tool -> /opt/linked/bin/tool
				usr/local/bin/rootkey -> /root/.ssh/id_rsa`,
			path:  "/opt/node/bin:" + system,
			has:   []string{"bind /opt/node", "bind /opt/linked"},
			hasNo: []string{"/opt/secret", "/root"},
			inner: "/opt/node/bin:" + system,
			notes: [][2]string{{"/usr/local/bin/rootkey", "another user"}},
		},
		{
			name: "root, with its own home", tree: debian + `
				root/.cargo/bin/cargo
				root/.cargo/registry/cache/x = crate
				root/.cargo/credentials.toml = CANARY-cargo
				root/.rustup/toolchains/stable/bin/rustc`,
			path: "/root/.cargo/bin:" + system,
			edit: func(in *Input) { in.Home, in.UID, in.GID, in.Username = "/root", 0, 0, "root" },
			has: []string{"home /root", "bind /root/.cargo/bin", "bind /root/.cargo/registry cow", "bind /root/.rustup", "workspace /home/u/proj",
				"dir /home/u"},
			inner: "/root/.cargo/bin:" + system,
		},
		{
			name: "no home at all", tree: debian + "root/.cargo/bin/cargo\nroot/.cargo/credentials = CANARY-cargo", path: "/root/.cargo/bin:" + system,
			edit:  func(in *Input) { in.Home, in.UID, in.GID, in.Username = "/", 0, 0, "root" },
			has:   []string{"home /root", "bind /root/.cargo/bin"},
			inner: "/root/.cargo/bin:" + system,
			notes: [][2]string{{"HOME", "/root"}},
		},
		{
			name: "an account whose home is in usr", tree: debian + "usr/games/.ssh/id = CANARY-games\nusr/games/cowsay", path: system + ":/usr/games",
			edit:  func(in *Input) { in.Home = "/usr/games" },
			has:   []string{"home /home/u", "mask /usr/games/.ssh"},
			inner: system + ":/usr/games",
			notes: [][2]string{{"HOME", "cannot be a home"}},
		},
		{
			name: "a home that does not exist", tree: debian, path: system,
			edit:  func(in *Input) { in.Home = "/nonexistent" },
			has:   []string{"home /nonexistent", "dir /home/u"},
			inner: system,
		},
		{
			name: "a workspace that holds the home", tree: debian + "home/u/.cargo/bin/cargo", path: "/home/u/.cargo/bin:" + system,
			edit:  func(in *Input) { in.Workspace = "/home/u" },
			has:   []string{"workspace /home/u"},
			hasNo: []string{"/home/u/.cargo/bin", "/home/u/.cargo"},
			inner: "/home/u/.cargo/bin:" + system,
		},
		{
			name: "the whole host as the workspace", tree: debian, path: system,
			edit: func(in *Input) { in.Workspace = "/" },
			has:  []string{"workspace /"}, hasNo: []string{"/usr", "/etc", "/etc/passwd"},
			inner: system,
		},
		{
			name: "a workspace inside a toolchain", tree: debian + "home/u/.pyenv/bin/pyenv\nhome/u/.pyenv/src/x = y", path: "/home/u/.pyenv/bin:" + system,
			edit:  func(in *Input) { in.Workspace = "/home/u/.pyenv/src" },
			has:   []string{"bind /home/u/.pyenv", "workspace /home/u/.pyenv/src"},
			inner: "/home/u/.pyenv/bin:" + system,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := plant(t, tt.tree)
			in := inputFor(root, tt.path)
			if tt.edit != nil {
				tt.edit(&in)
			}
			v := compute(t, in)
			got := targets(v)
			for _, want := range tt.has {
				if !slices.Contains(got, want) {
					t.Errorf("no entry %q in\n%s", want, strings.Join(got, "\n"))
				}
			}
			for _, e := range v.Entries {
				if slices.Contains(tt.hasNo, e.Target) && e.Kind != KindDir {
					t.Errorf("%s is there", describe(e))
				}
			}
			if p := env(v, "PATH"); p != tt.inner {
				t.Errorf("PATH inside is\n%s, not\n%s", p, tt.inner)
			}
			for _, n := range tt.notes {
				if !hasNote(v, n[0], n[1]) {
					t.Errorf("no note on %s that says %q in %q", n[0], n[1], v.Notes)
				}
			}
			if found := canaries(t, root, v); len(found) > 0 {
				t.Errorf("secrets can be read inside:\n%s", strings.Join(found, "\n"))
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	root := plant(t, debian)
	for name, tt := range map[string]struct {
		edit func(*Input)
		code bailey.Code
	}{
		"no such workspace":       {func(in *Input) { in.Workspace = "/home/u/nowhere" }, bailey.CodeNotFound},
		"workspace is a file":     {func(in *Input) { in.Workspace = "/home/u/proj/main.go" }, bailey.CodeNotFound},
		"workspace is relative":   {func(in *Input) { in.Workspace = "proj" }, bailey.CodeNotFound},
		"user with a colon":       {func(in *Input) { in.Username = "a:b" }, bailey.CodeUsage},
		"user with a line":        {func(in *Input) { in.Username = "a\nroot" }, bailey.CodeUsage},
		"negative id":             {func(in *Input) { in.UID = -1 }, bailey.CodeUsage},
		"variable without a name": {func(in *Input) { in.SetEnv = []string{"=x"} }, bailey.CodeUsage},
		"variable with NUL":       {func(in *Input) { in.SetEnv = []string{"A=x\x00y"} }, bailey.CodeUsage},
		"the mark":                {func(in *Input) { in.SetEnv = []string{"BAILEY=0"} }, bailey.CodeUsage},
		"mount of nothing":        {func(in *Input) { in.Mounts = []Mount{{Source: "/nowhere", Target: "/data"}} }, bailey.CodeNotFound},
		"mount of the host":       {func(in *Input) { in.Mounts = []Mount{{Source: "/", Target: "/data"}} }, bailey.CodeHostRootEquivalent},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputFor(root, "/usr/bin")
			tt.edit(&in)
			if _, err := Compute(in); bailey.CodeOf(err) != tt.code {
				t.Errorf("got %v, not %s", err, tt.code)
			}
		})
	}
}
