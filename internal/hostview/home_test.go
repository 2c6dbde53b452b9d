package hostview

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tools is a home full of toolchains, each with something that must not be
// seen beside what must.
const tools = `
	home/u/go/bin/gopls
	home/u/go/bin/go1.22.0
	home/u/go/pkg/mod/cache/x = module
	home/u/go/pkg/sumdb/sum.golang.org/latest = sum
	home/u/go/src/private/x.go = CANARY-gosrc
	home/u/sdk/go1.22.0/bin/go
	home/u/sdk/android/key = CANARY-sdk
	home/u/go1.26/bin/go
	home/u/go1.26/src/runtime/runtime.go = package runtime
	home/u/go1.26/pkg/tool/x = x
	home/u/.cargo/bin/cargo
	home/u/.cargo/bin/rustc -> cargo
	home/u/.cargo/env = env
	home/u/.cargo/registry/cache/x = crate
	home/u/.cargo/git/db/x = git
	home/u/.rustup/toolchains/stable/bin/rustc
	home/u/.nvm/versions/node/v20/bin/node
	home/u/.nvm/versions/node/v20/bin/npm -> ../lib/node_modules/npm/bin/npm-cli.js
	home/u/.nvm/versions/node/v20/lib/node_modules/npm/bin/npm-cli.js
	home/u/.nvm/versions/node/v20/etc/npmrc = CANARY-nvmrc
	home/u/.local/share/fnm/node-versions/v22/installation/bin/node
	home/u/.local/share/fnm/node-versions/v22/installation/etc/npmrc = CANARY-fnmrc
	run/user/1000/fnm_multishells/1_2 -> /home/u/.local/share/fnm/node-versions/v22/installation
	home/u/.volta/bin/node
	home/u/.volta/tools/image/node/20/bin/node
	home/u/.volta/tools/image/node/20/etc/npmrc = CANARY-volta
	home/u/.volta/hooks.json = CANARY-voltahooks
	home/u/n/bin/node
	home/u/n/etc/npmrc = CANARY-n
	home/u/.npm-global/bin/tsc -> ../lib/node_modules/typescript/bin/tsc
	home/u/.npm-global/lib/node_modules/typescript/bin/tsc
	home/u/.npm-global/etc/npmrc = CANARY-npmglobal
	home/u/.bun/bin/bun
	home/u/.bun/install/cache/x = x
	home/u/.bun/install/global/bunfig.toml = x
	home/u/.bun/bunfig.toml = CANARY-bun
	home/u/.deno/bin/deno
	home/u/.deno/token = CANARY-deno
	home/u/.pyenv/bin/pyenv
	home/u/.pyenv/shims/python
	home/u/.pyenv/versions/3.11/bin/python3.11
	home/u/.rbenv/shims/ruby
	home/u/.asdf/shims/node
	home/u/.asdf/installs/rust/1.80/credentials.toml = CANARY-asdf
	home/u/.asdf/installs/rust/1.80/bin/rustc
	home/u/.asdf/installs/nodejs/20/etc/npmrc = CANARY-asdfnpm
	home/u/.asdf/installs/nodejs/20/.npmrc = CANARY-asdfnpm2
	home/u/.local/share/mise/shims/node -> /home/u/.local/bin/mise
	home/u/.local/share/mise/installs/rust/1.80/credentials = CANARY-mise
	home/u/.sdkman/candidates/java/current/bin/java
	home/u/.sdkman/etc/config = CANARY-sdkman
	home/u/.local/bin/mise
	home/u/.local/bin/black -> /home/u/.local/share/pipx/venvs/black/bin/black
	home/u/.local/share/pipx/venvs/black/pyvenv.cfg = home
	home/u/.local/share/pipx/venvs/black/bin/black
	home/u/.local/share/pipx/venvs/black/bin/python -> /home/u/.pythons/3.12/bin/python3.12
	home/u/.pythons/3.12/bin/python3.12
	home/u/.local/share/pipx/logs/log = CANARY-pipxlog
	home/u/.local/bin/ruff -> ../share/uv/tools/ruff/bin/ruff
	home/u/.local/share/uv/tools/ruff/bin/ruff
	home/u/.local/share/uv/python/cpython/bin/python3
	home/u/.local/bin/claude -> /home/u/.local/share/claude/versions/2.1
	home/u/.local/share/claude/versions/2.1
	home/u/.local/share/claude/auth.json = CANARY-claudeauth
	home/u/.local/bin/node22 -> /home/u/node-v22/bin/node
	home/u/node-v22/bin/node
	home/u/node-v22/lib/node_modules/npm/x = x
	home/u/node-v22/notes = CANARY-nodenotes
	home/u/.local/bin/mytool -> ../../src/mytool/bin/mytool
	home/u/src/mytool/bin/mytool
	home/u/src/mytool/lib/x = CANARY-checkout
	home/u/src/mytool/.git/config = CANARY-checkoutgit
	home/u/.local/bin/evil -> ../../.ssh/id_rsa
	home/u/.local/bin/evil2 -> /home/u/.ssh
	home/u/.local/bin/evil3 -> /home/u
	home/u/.local/bin/evil4 -> /etc/shadow
	home/u/.local/bin/evil5 -> /home/u/.local/share/keyrings/login.keyring
	home/u/.local/bin/evil6 -> chain1
	home/u/.local/bin/chain1 -> ../../.aws/credentials
	home/u/.local/bin/evil7 -> ../../.local/share/opencode/auth.json
	home/u/.local/bin/evil8 -> /home/other/bin/tool
	home/u/.local/bin/evil9 -> /var/lib/docker/secret
	home/u/.local/bin/evil10 -> ../../data/id_rsa
	home/u/.local/bin/evil11 -> ../../deep/x/.env
	home/u/.ssh/id_rsa = CANARY-ssh
	home/u/.aws/credentials = CANARY-aws
	home/u/.local/share/keyrings/login.keyring = CANARY-keyring
	home/u/.local/share/opencode/auth.json = CANARY-opencode
	home/u/data/id_rsa = CANARY-keyelsewhere
	home/u/deep/x/.env = CANARY-dotenv
	home/u/.local/bin/.env = CANARY-binenv
	home/u/.local/lib/python3.11/site-packages/x.py = x
	home/u/miniconda3/bin/conda
	home/u/miniconda3/.condarc = CANARY-condarc
	home/u/miniconda3/pkgs/urls.txt = CANARY-condaurls
	home/u/.juliaup/bin/julia
	home/u/.julia/juliaup/julia-1.11/bin/julia
	home/u/.julia/packages/x = x
	home/u/.julia/environments/v1/x = CANARY-juliaenv
	home/u/.ghcup/bin/ghc
	home/u/.ghcup/ghc/9/bin/ghc
	home/u/.ghcup/config.yaml = CANARY-ghcup
	home/u/.dotnet/dotnet
	home/u/.dotnet/tools/x
	home/u/.dotnet/other = CANARY-dotnet
	home/u/.foundry/bin/forge
	home/u/.foundry/keystores/key = CANARY-foundry
	home/u/bin/script
	home/u/Documents/bin/tool
	home/u/Documents/bin/letter = CANARY-letter
	home/u/bin/credentials.json = CANARY-bincred
	home/u/bin/deploy.pem = CANARY-binpem
	home/u/share/x = CANARY-homeshare
	home/u/lib/x = CANARY-homelib
	home/u/tools/zig/zig
	home/u/tools/zig/lib/std.zig = std
	home/u/tools/zig/notes.txt = CANARY-zignotes
	home/u/venv/bin/python -> /usr/bin/sh
	home/u/venv/pyvenv.cfg = home
	home/u/venv/lib/x = x
	home/u/venv/.env = CANARY-venvenv
`

var toolPath = strings.Join([]string{
	"/home/u/go/bin", "/home/u/go1.26/bin", "/home/u/.cargo/bin", "/home/u/.nvm/versions/node/v20/bin", "/run/user/1000/fnm_multishells/1_2/bin",
	"/home/u/.volta/bin", "/home/u/n/bin", "/home/u/.npm-global/bin", "/home/u/.bun/bin", "/home/u/.deno/bin", "/home/u/.pyenv/bin", "/home/u/.pyenv/shims",
	"/home/u/.rbenv/shims", "/home/u/.asdf/shims", "/home/u/.local/share/mise/shims", "/home/u/.sdkman/candidates/java/current/bin", "/home/u/.local/bin",
	"/home/u/miniconda3/bin", "/home/u/.juliaup/bin", "/home/u/.ghcup/bin", "/home/u/.dotnet", "/home/u/.foundry/bin", "/home/u/bin", "/home/u/tools/zig", "/home/u/Documents/bin",
	"/home/u/venv/bin", "/usr/local/bin", "/usr/bin", "/bin",
}, ":")

// plantSecrets puts a canary at every place of the deny list that is not in
// the way of something else.
func plantSecrets(t *testing.T, root string) (planted int) {
	t.Helper()
	for _, s := range secretPaths {
		p := filepath.Join(root, "home/u", strings.ReplaceAll(s, "*", "x"))
		if _, err := os.Lstat(p); err == nil {
			p = filepath.Join(p, "canary")
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			continue // below another secret, which is a file by now
		}
		if err := os.WriteFile(p, []byte("CANARY-"+s), 0o644); err == nil {
			planted++
		}
	}
	return planted
}

func TestHomeFullOfToolsAndSecrets(t *testing.T) {
	root := plant(t, debian+tools)
	plantSocket(t, root, "home/u/.gnupg/S.gpg-agent")
	plantSocket(t, root, "home/u/.docker/run/docker.sock")
	plantSocket(t, root, "home/u/bin/agent.sock")
	plantSocket(t, root, "home/u/.local/share/claude/daemon")
	if n := plantSecrets(t, root); n < len(secretPaths)*9/10 {
		t.Fatalf("only %d of %d secrets could be planted", n, len(secretPaths))
	}
	in := inputFor(root, toolPath)
	v := compute(t, in)

	if found := canaries(t, root, v); len(found) > 0 {
		t.Errorf("secrets can be read inside:\n%s", strings.Join(found, "\n"))
	}
	uncovered := v
	uncovered.Entries = slices.DeleteFunc(slices.Clone(v.Entries), func(e Entry) bool { return e.Kind == KindMask })
	if found := canaries(t, root, uncovered); len(found) < 10 {
		t.Errorf("without covers only %d secrets are found: this test tests little", len(found))
	}

	got := targets(v)
	for _, want := range strings.Split(strings.TrimSpace(`
		bind /home/u/go/bin
		bind /home/u/go/pkg/mod cow
		bind /home/u/go/pkg/sumdb cow
		bind /home/u/sdk/go1.22.0
		bind /home/u/go1.26
		bind /home/u/.cargo/bin
		bind /home/u/.cargo/registry cow
		bind /home/u/.cargo/git cow
		bind /home/u/.rustup
		bind /home/u/.nvm
		bind /home/u/.local/share/fnm
		symlink /run/user/1000/fnm_multishells/1_2 -> /home/u/.local/share/fnm/node-versions/v22/installation
		bind /home/u/.volta/bin
		bind /home/u/.volta/tools
		bind /home/u/.npm-global/lib
		bind /home/u/.bun/install/cache cow
		bind /home/u/.deno/bin
		bind /home/u/.pyenv
		bind /home/u/.rbenv
		bind /home/u/.asdf
		bind /home/u/.local/share/mise
		bind /home/u/.sdkman/candidates
		bind /home/u/.local/bin
		bind /home/u/.local/lib
		bind /home/u/.local/share/pipx/venvs
		bind /home/u/.local/share/uv/tools
		bind /home/u/.local/share/claude
		mask /home/u/.local/share/claude/auth.json
		bind /home/u/node-v22/lib
		bind /home/u/src/mytool/bin/mytool
		bind /home/u/miniconda3
		bind /home/u/.juliaup/bin
		bind /home/u/.julia/juliaup
		bind /home/u/.julia/packages cow
		bind /home/u/.ghcup/bin
		bind /home/u/.dotnet/dotnet
		bind /home/u/.foundry/bin
		bind /home/u/bin
		mask /home/u/bin/deploy.pem
		bind /home/u/tools/zig/zig
		bind /home/u/tools/zig/lib
		bind /home/u/venv/lib
		bind /home/u/venv/pyvenv.cfg
		mask /home/u/.nvm/versions/node/v20/etc/npmrc`), "\n") {
		if want = strings.TrimSpace(want); !slices.Contains(got, want) {
			t.Errorf("no entry %q", want)
		}
	}
	for _, p := range []string{"/home/u/.cargo", "/home/u/.local", "/home/u/.local/share", "/home/u/src/mytool", "/home/u/share", "/home/u/data", "/var"} {
		if i := slices.IndexFunc(v.Entries, func(e Entry) bool { return e.Target == p && e.Kind != KindDir }); i >= 0 {
			t.Errorf("%s is shown", describe(v.Entries[i]))
		}
	}
	if p, want := env(v, "PATH"), strings.Replace(toolPath, "/home/u/Documents/bin:", "", 1); p != want {
		t.Errorf("PATH inside is\n%s, not\n%s", p, want)
	}
	if !hasNote(v, "/home/u/Documents/bin", "private") {
		t.Error("nothing is said about ~/Documents/bin")
	}
	for _, s := range []string{"evil", "evil2", "evil3", "evil4", "evil5", "evil6", "evil7", "evil8", "evil9", "evil10", "evil11"} {
		if !slices.ContainsFunc(v.Notes, func(n Note) bool { return n.Subject == "/home/u/.local/bin/"+s }) {
			t.Errorf("nothing is said about ~/.local/bin/%s", s)
		}
	}
	// What is shown can be run: the links lead somewhere.
	at := map[string]Entry{}
	for _, e := range v.Entries {
		at[e.Target] = e
	}
	inside := newInsider(newTree(root), at)
	for _, p := range []string{"/home/u/.local/bin/black", "/home/u/.local/bin/ruff", "/home/u/.local/bin/claude", "/home/u/.local/bin/node22",
		"/home/u/.local/bin/mytool", "/home/u/.nvm/versions/node/v20/bin/npm", "/home/u/.npm-global/bin/tsc", "/home/u/.cargo/bin/rustc",
		"/run/user/1000/fnm_multishells/1_2/bin/node", "/home/u/.local/share/mise/shims/node", "/home/u/venv/bin/python", "/bin/sh"} {
		if !inside.exists(p) {
			t.Errorf("%s leads nowhere inside", p)
		}
	}
	for _, p := range []string{"/home/u/.local/bin/evil", "/home/u/.local/bin/evil2/id_rsa", "/home/u/.ssh", "/etc/shadow", "/home/other/bin/tool", "/run/docker.sock"} {
		if inside.exists(p) {
			t.Errorf("%s can be opened inside", p)
		}
	}
}

// TestToolchainVariables moves toolchains by their variables, also to places
// that they must not show.
func TestToolchainVariables(t *testing.T) {
	root := plant(t, debian+`
		data/cargo/bin/cargo
		data/cargo/registry/x = x
		data/cargo/credentials.toml = CANARY-movedcargo
		data/rustup/toolchains/x = x
		data/gomod/x = x
		usr/local/go/bin/go
		home/u/.ssh/bin/x
		home/u/.ssh/id_rsa = CANARY-ssh
		home/u/.pyenv -> .ssh
		home/u/go/pkg/mod -> /data/gomod
		home/u/.cargo/bin/cargo`)
	in := inputFor(root, "/data/cargo/bin:/usr/local/go/bin:/home/u/.pyenv/bin:/usr/bin")
	in.Env = append(in.Env, "CARGO_HOME=/data/cargo", "RUSTUP_HOME=/data/rustup")
	v := compute(t, in)
	got := targets(v)
	for _, want := range []string{"bind /data/cargo/bin", "bind /data/cargo/registry cow", "bind /data/rustup", "bind /data/gomod cow",
		"symlink /home/u/go/pkg/mod -> /data/gomod"} {
		if !slices.Contains(got, want) {
			t.Errorf("no entry %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
	if env(v, "CARGO_HOME") != "/data/cargo" || env(v, "PATH") != "/data/cargo/bin:/usr/local/go/bin:/usr/bin" {
		t.Errorf("the environment inside is %q", v.Env)
	}
	if !hasNote(v, "/home/u/.ssh/bin", ".ssh may hold") {
		t.Errorf("no note on the toolchain that is a link to .ssh: %q", v.Notes)
	}
	for _, bad := range []string{"/", "/etc", "/home", "/home/u", "/home/u/.ssh", "/home/other", "/var", "/var/lib", "/run", "/proc", "/boot", "/root", "/mnt"} {
		in.Env = []string{"PATH=/data/cargo/bin:/usr/bin", "CARGO_HOME=/data/cargo", "RUSTUP_HOME=" + bad, "GOPATH=" + bad, "NVM_DIR=" + bad}
		v := compute(t, in)
		for _, e := range v.Entries {
			if e.Kind == KindBind && (within(bad, e.Source) || e.Source == bad) {
				t.Errorf("RUSTUP_HOME=%s shows %s", bad, describe(e))
			}
		}
		if found := canaries(t, root, v); len(found) > 0 {
			t.Errorf("with RUSTUP_HOME=%s secrets can be read inside:\n%s", bad, strings.Join(found, "\n"))
		}
	}
}

// TestBaileyHomeStaysAway puts Bailey's own folder where a rule would show it.
func TestBaileyHomeStaysAway(t *testing.T) {
	root := plant(t, debian+"home/u/.pyenv/bin/pyenv\nhome/u/.pyenv/bailey/trust/x = CANARY-bailey\nopt/bailey/bin/x\nopt/bailey/data = CANARY-optbailey")
	for _, home := range []string{"/home/u/.pyenv/bailey", "/opt/bailey"} {
		in := inputFor(root, "/home/u/.pyenv/bin:/opt/bailey/bin:/usr/bin")
		in.BaileyHome = home
		v := compute(t, in)
		for _, found := range canaries(t, root, v) {
			if strings.Contains(found, "-bailey") == (home != "/opt/bailey") {
				t.Errorf("with BAILEY_HOME=%s: %s", home, found)
			}
		}
	}
}

func TestDenyList(t *testing.T) {
	d := newDenyList("/home/u", "/var/lib/bailey")
	for _, s := range secretPaths {
		p := path.Join("/home/u", strings.ReplaceAll(s, "*", "x"))
		if d.why(p) == "" || d.why(p+"/below") == "" {
			t.Errorf("%s is not denied", p)
		}
	}
	for _, p := range []string{"/home/u", "/var/lib/bailey", "/var/lib/bailey/runs", "/usr/etc/npmrc"} {
		if d.why(p) == "" {
			t.Errorf("%s is not denied", p)
		}
	}
	for _, p := range []string{"/home/u/.sshx", "/home/u/src", "/home/u/.cargo/bin", "/home/user/.ssh", "/usr/bin", "/home/u/.local/bin", "/var/lib/baileys"} {
		if why := d.why(p); why != "" {
			t.Errorf("%s is denied: %s", p, why)
		}
	}
}
