package hostview

// toolchain is what one language's or tool's manager keeps below the home, and
// what of it a sandbox may see. Everything else of it stays away: tokens,
// settings, logs and histories.
type toolchain struct {
	name  string
	env   string   // variable that names the root instead, or ""
	roots []string // where the root is otherwise, relative to the home; the first that exists counts
	// show and cow are folders below the root ("." is the root itself) that
	// are seen read-only and copy-on-write. A star matches one name.
	show, cow []string
	hide      []string // files below the root to cover where show reveals them
	needs     []string // names of toolchains that are of no use apart from this one
	// command, found anywhere on PATH, is enough for cow to be shown: a
	// compiler of the system finds its downloaded modules too.
	command string
}

// npmrcs are the places where npm's installation-wide settings, tokens
// included, lie below a folder of Node.js versions.
var npmrcs = []string{"etc/npmrc", "*/etc/npmrc", "*/*/etc/npmrc", "*/*/*/etc/npmrc", "*/*/*/*/etc/npmrc", ".npmrc"}

// managedInstalls are credentials that managers of many languages keep inside
// an installed version, because that is the language's own home there.
var managedInstalls = append([]string{
	"installs/rust/*/credentials", "installs/rust/*/credentials.toml", "installs/rust/*/config", "installs/rust/*/config.toml",
	"installs/*/*/.npmrc", "installs/*/*/.netrc", "installs/*/*/.condarc",
}, npmrcs...)

// toolchains is the table. A folder on PATH at or below a root shows that
// root's part; a folder on PATH that no root holds is shown by itself.
var toolchains = []toolchain{
	{name: "go", env: "GOPATH", roots: []string{"go"}, show: []string{"bin"}, needs: []string{"go-sdk"}},
	{name: "go-modules", env: "GOMODCACHE", roots: []string{"go/pkg/mod"}, cow: []string{"."}, command: "go"},
	{name: "go-sums", roots: []string{"go/pkg/sumdb"}, cow: []string{"."}, command: "go"},
	{name: "go-sdk", roots: []string{"sdk"}, show: []string{"go*"}},
	{name: "cargo", env: "CARGO_HOME", roots: []string{".cargo"}, show: []string{"bin", "env"}, cow: []string{"registry", "git"},
		needs: []string{"rustup"}, command: "cargo"},
	{name: "rustup", env: "RUSTUP_HOME", roots: []string{".rustup"}, show: []string{"."}},
	{name: "nvm", env: "NVM_DIR", roots: []string{".nvm", ".config/nvm"}, show: []string{"."}, hide: npmrcs},
	{name: "fnm", env: "FNM_DIR", roots: []string{".local/share/fnm", ".fnm"}, show: []string{"."}, hide: npmrcs},
	{name: "volta", env: "VOLTA_HOME", roots: []string{".volta"}, show: []string{"bin", "tools"},
		hide: []string{"tools/image/node/*/etc/npmrc", "tools/image/packages/*/etc/npmrc"}},
	{name: "n", env: "N_PREFIX", roots: []string{"n", ".n"}, show: []string{"bin", "lib", "include", "share", "n"}, hide: npmrcs},
	{name: "npm-global", roots: []string{".npm-global", ".npm-packages", ".npm-prefix"}, show: []string{"bin", "lib", "share"}},
	{name: "yarn", roots: []string{".yarn"}, show: []string{"bin", "lib", "releases"}, needs: []string{"yarn-global"}},
	{name: "yarn-global", roots: []string{".config/yarn/global"}, show: []string{"node_modules", "package.json"}},
	{name: "pnpm", env: "PNPM_HOME", roots: []string{".local/share/pnpm"}, show: []string{"."}, hide: []string{"rc", ".npmrc", "auth.ini"}},
	{name: "bun", env: "BUN_INSTALL", roots: []string{".bun"}, show: []string{"bin", "install/global"}, cow: []string{"install/cache"}},
	{name: "deno", env: "DENO_INSTALL", roots: []string{".deno"}, show: []string{"bin"}},
	{name: "pyenv", env: "PYENV_ROOT", roots: []string{".pyenv"}, show: []string{"."}},
	{name: "rbenv", env: "RBENV_ROOT", roots: []string{".rbenv"}, show: []string{"."}},
	{name: "nodenv", env: "NODENV_ROOT", roots: []string{".nodenv"}, show: []string{"."}, hide: npmrcs},
	{name: "goenv", env: "GOENV_ROOT", roots: []string{".goenv"}, show: []string{"."}},
	{name: "jenv", roots: []string{".jenv"}, show: []string{"."}},
	{name: "rvm", roots: []string{".rvm"}, show: []string{"."}, hide: []string{"user/*"}},
	{name: "gem", roots: []string{".local/share/gem", ".gem"}, show: []string{"ruby"}},
	{name: "asdf", env: "ASDF_DATA_DIR", roots: []string{".asdf"}, show: []string{"."}, hide: managedInstalls},
	{name: "mise", env: "MISE_DATA_DIR", roots: []string{".local/share/mise"}, show: []string{"."}, hide: managedInstalls},
	{name: "proto", env: "PROTO_HOME", roots: []string{".proto"}, show: []string{"bin", "shims", "tools", "plugins"}, hide: []string{"tools/*/*/etc/npmrc"}},
	{name: "sdkman", env: "SDKMAN_DIR", roots: []string{".sdkman"}, show: []string{"candidates", "bin", "src", "libexec"}},
	{name: "uv", roots: []string{".local/share/uv"}, show: []string{"python", "tools"}},
	{name: "pipx", env: "PIPX_HOME", roots: []string{".local/share/pipx", ".local/pipx"}, show: []string{"venvs", "shared", "py"}},
	{name: "rye", env: "RYE_HOME", roots: []string{".rye"}, show: []string{"shims", "py", "tools", "self", "uv"}},
	{name: "poetry", roots: []string{".local/share/pypoetry", ".poetry"}, show: []string{"venv", "bin", "lib"}},
	{name: "conda", roots: []string{"miniconda3", "miniconda", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".local/share/mamba"},
		show: []string{"."}, hide: []string{".condarc", "condarc", ".condarc.d", "condarc.d", "envs/*/.condarc", "etc/conda/.condarc",
			"pkgs/urls", "pkgs/urls.txt", ".conda", "conf.d"}},
	{name: "juliaup", roots: []string{".juliaup"}, show: []string{"bin"}, needs: []string{"julia"}},
	{name: "julia", roots: []string{".julia"}, show: []string{"juliaup"}, cow: []string{"packages", "artifacts", "compiled", "registries"}, command: "julia"},
	{name: "ghcup", roots: []string{".ghcup"}, show: []string{"bin", "ghc", "hls", "cabal", "stack", "share"}},
	{name: "cabal", env: "CABAL_DIR", roots: []string{".cabal"}, show: []string{"bin"}, cow: []string{"packages", "store"}, command: "cabal"},
	{name: "stack", roots: []string{".stack"}, show: []string{"programs"}},
	{name: "opam", env: "OPAMROOT", roots: []string{".opam"}, show: []string{"."}},
	{name: "elan", env: "ELAN_HOME", roots: []string{".elan"}, show: []string{"bin", "toolchains", "settings.toml"}},
	{name: "dotnet", env: "DOTNET_ROOT", roots: []string{".dotnet"},
		show: []string{"dotnet", "host", "shared", "sdk", "sdk-manifests", "packs", "templates", "metadata", "tools"}},
	{name: "composer", roots: []string{".config/composer", ".composer"}, show: []string{"vendor"}},
	{name: "krew", roots: []string{".krew"}, show: []string{"bin", "store"}},
	{name: "linuxbrew", env: "HOMEBREW_PREFIX", roots: []string{".linuxbrew"},
		show: []string{"bin", "sbin", "lib", "libexec", "include", "share", "opt", "Cellar", "Homebrew", "etc/openssl@3", "etc/ca-certificates"}},
	{name: "user-bin", roots: []string{".local/bin"}, show: []string{"."}, hide: []string{".env", "*.pem", "*.key"}, needs: []string{"user-lib"}},
	{name: "user-lib", roots: []string{".local/lib"}, show: []string{"."}},
}

// prefixFolders are what lies beside a bin folder that belongs to the same
// installation and not to a person.
var prefixFolders = []string{"sbin", "lib", "lib32", "lib64", "libexec", "include", "share", "jmods", "conf", "boot", "release", "packages", "pyvenv.cfg"}

// binNames are names of folders that hold programs and nothing else.
var binNames = map[string]bool{"bin": true, "sbin": true, ".bin": true, "shims": true}
