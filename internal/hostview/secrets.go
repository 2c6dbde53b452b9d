package hostview

import (
	"path"
	"strings"
	"sync"
)

// secretPaths are the places below a home that no rule may show: credentials,
// keys, sessions, histories, and the private data of browsers and agents. A
// place stands for everything below it. A star stands for any part of one name.
var secretPaths = strings.Fields(`
	.ssh .ssh2 .putty .gnupg .pki .age .config/age .config/sops .rhosts .shosts .k5login .krb5 .k5identity
	.aws .azure .oci .aliyun .bluemix .config/gcloud .config/doctl .config/hcloud .config/linode-cli .config/scw
	.config/rclone .s3cfg .boto .config/heroku .config/fly .fly .railway .supabase .config/netlify .netlify
	.config/vercel .local/share/com.vercel.cli .config/configstore .databrickscfg .snowflake .snowsql .kaggle
	.config/gh .config/glab-cli .config/hub .config/github-copilot .copilot .config/op .op .config/1Password .1password
	.config/Bitwarden* .config/keepassxc .keepass .password-store .local/share/password-store
	.config/gopass .local/share/gopass .vault-token .config/vault .terraform.d .terraformrc .config/helm .helm
	.kube .minikube .k3d .kind .docker .config/containers .local/share/containers .config/podman
	.netrc _netrc .git-credentials .gitconfig .config/git .gitconfig.* .subversion .hgrc .config/hg .bzr
	.npmrc .yarnrc .yarnrc.yml .config/npm .pypirc .pip .config/pip .config/uv .local/share/uv/credentials .config/pypoetry
	.condarc .config/conda .mambarc .gem/credentials .local/share/gem/credentials .bundle .config/bundle
	.cargo/credentials .cargo/credentials.toml .cargo/config .cargo/config.toml
	.m2 .gradle .sbt .ivy2 .nuget .config/NuGet .dotnet/corefx .composer/auth.json .config/composer/auth.json .config/mise
	.julia/servers .julia/logs .cabal/config .config/cabal .hex .opam/opam-init/hooks .krew/config
	.mozilla .thunderbird .librewolf .waterfox .zen .tor-browser .cache/mozilla
	.config/google-chrome* .config/chromium .config/BraveSoftware .config/vivaldi* .config/opera* .config/microsoft-edge*
	.cache/google-chrome* .cache/chromium .cache/BraveSoftware .cache/microsoft-edge*
	snap .snap .var .local/share/flatpak Library
	.local/share/keyrings .gnome2 .gnome .kde .kde4 .local/share/kwalletd .config/kwalletrc .local/share/Trash
	.bash_history .zsh_history .zhistory .zsh_sessions .bash_sessions .sh_history .ash_history .history .histfile
	.local/share/fish .local/share/atuin .local/share/mcfly .python_history .node_repl_history .irb_history .pry_history
	.psql_history .mysql_history .sqlite_history .rediscli_history .mongosh .dbshell .lesshst .viminfo .wget-hsts
	.local/share/nvim .local/state .my.cnf .mylogin.cnf .pgpass .pg_service.conf .mongorc.js
	.huggingface .cache/huggingface .config/wandb .jupyter .local/share/jupyter .ipython .config/kaggle
	.Xauthority .ICEauthority .config/pulse .esd_auth .dbus .cache/keyring* .keychain
	.claude .claude.json .config/claude .config/Claude .config/anthropic .codex .config/codex .gemini .config/gemini
	.config/openai .config/opencode .local/share/opencode .cursor .config/Cursor .config/Code .config/VSCodium
	.vscode .vscode-server .vscode-oss .windsurf .codeium .aider* .continue .config/goose .local/share/goose .qwen
	.config/amp .local/share/amp .openhands .openclaw .cline .roo .config/zed .local/share/zed .config/JetBrains .local/share/JetBrains
	.config/Slack .config/discord .config/Signal .local/share/TelegramDesktop .config/teams* .config/filezilla .filezilla
	.colima .lima .orbstack .rd .multipass .config/remmina .local/share/remmina .vnc .bitcoin .ethereum .electrum .config/solana .config/restic .config/borg
	.wine .env .envrc .profile .bashrc .bash_profile .bash_login .bash_logout .zshrc .zshenv .zprofile .config/fish
	.local/share/bailey .bailey
`)

// personalPaths are folders below the home that no rule may show because of
// what people keep there. An owner may mount them, or work in them.
var personalPaths = strings.Fields(`Documents Desktop Downloads Pictures Music Videos Dropbox Nextcloud OneDrive`)

// secretNames are names that hold credentials wherever they lie. Folders that
// a rule shows without knowing what is in them are searched for these.
var secretNames = strings.Fields(`
	.netrc _netrc .npmrc npmrc .yarnrc.yml .pypirc .git-credentials .env .env.* .envrc .vault-token .pgpass .my.cnf .htpasswd
	id_rsa id_dsa id_ecdsa id_ed25519 id_ecdsa_sk id_ed25519_sk .ssh .gnupg .aws .kube .docker .azure
	credentials credentials.* auth.json token tokens.json secrets secrets.* .condarc condarc
	*.pem *.key *.p12 *.pfx *.jks *.kdbx *.keytab *.ppk
`)

// secretSystemPaths are places outside every home that a rule for a wider
// folder would show, and must not.
var secretSystemPaths = strings.Fields(`
	/usr/etc/npmrc /usr/local/etc/npmrc /usr/local/etc/ssh /usr/etc/ssh /usr/local/etc/pip.conf /usr/local/etc/my.cnf
	/usr/local/etc/openvpn /usr/local/etc/wireguard /opt/conda/.condarc
`)

// denyList answers what may never be shown by a rule.
type denyList struct {
	home   string          // the home's real path, or "" if there is none to protect
	bailey string          // Bailey's data folder, real, or ""
	exact  map[string]bool // places below the home, without stars
	globs  []string        // places below the home with stars in the last name
}

func newDenyList(home, bailey string) denyList {
	d := denyList{home: home, bailey: bailey, exact: make(map[string]bool, len(secretPaths))}
	for _, p := range secretPaths {
		if strings.ContainsRune(p, '*') {
			d.globs = append(d.globs, p)
		} else {
			d.exact[p] = true
		}
	}
	return d
}

// why says why the real path p may not be shown, or "" if it may. It does not
// speak about what lies below p.
func (d denyList) why(p string) string {
	if d.bailey != "" && within(p, d.bailey) {
		return "it is Bailey's own data"
	}
	for _, s := range secretSystemPaths {
		if within(p, s) {
			return "it may hold credentials"
		}
	}
	if d.home == "" || !within(p, d.home) {
		return ""
	}
	rel := below(p, d.home)
	if rel == "" {
		return "it is the home folder"
	}
	for i := 0; i <= len(rel); i++ {
		if i < len(rel) && rel[i] != '/' {
			continue
		}
		if d.matches(rel[:i]) {
			return "~/" + rel[:i] + " may hold credentials or private data"
		}
	}
	return ""
}

// matches says whether rel, relative to the home, is itself on the list.
func (d denyList) matches(rel string) bool {
	if d.exact[rel] {
		return true
	}
	for _, g := range d.globs {
		if starMatch(g, rel) {
			return true
		}
	}
	return false
}

// inside gives the existing denied places below the real folder p, as real
// paths or as links that lie there.
func (d denyList) inside(t *tree, p string) []string {
	var found []string
	add := func(q string) {
		// A link on the way leads elsewhere, where its own place is judged.
		real, _, _, err := t.resolve(path.Dir(q))
		if q != p && within(q, p) && err == nil && real == path.Dir(q) && t.lstat(q) != nil {
			found = append(found, q)
		}
	}
	if d.bailey != "" {
		add(d.bailey)
	}
	for _, s := range secretSystemPaths {
		add(s)
	}
	if d.home == "" || !(within(p, d.home) || within(d.home, p)) {
		return found
	}
	prefix := ""
	if rel := below(p, d.home); within(p, d.home) && rel != "" {
		prefix = rel + "/"
	}
	for _, s := range secretPaths {
		if !strings.HasPrefix(s, prefix) {
			continue
		}
		full := path.Join(d.home, s)
		if !strings.ContainsRune(s, '*') {
			add(full)
			continue
		}
		for _, e := range t.list(path.Dir(full)) {
			if starMatch(path.Base(s), e.Name()) {
				add(path.Join(path.Dir(full), e.Name()))
			}
		}
	}
	return found
}

// secretTables are secretNames as they are looked up: made for who asks, as
// many calls of the program do not.
var secretTables = sync.OnceValues(func() (exact map[string]bool, patterns []string) {
	exact = make(map[string]bool, len(secretNames))
	for _, s := range secretNames {
		if strings.ContainsRune(s, '*') {
			patterns = append(patterns, s)
		} else {
			exact[s] = true
		}
	}
	return exact, patterns
})

// secretName says whether a file of this name is taken to hold credentials.
func secretName(name string) bool {
	exact, patterns := secretTables()
	if exact[name] {
		return true
	}
	if !strings.ContainsRune(name, '.') {
		return false // as every pattern has one
	}
	for _, s := range patterns {
		if starMatch(s, name) {
			return true
		}
	}
	return false
}
