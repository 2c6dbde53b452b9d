package hostview

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// envPlain are variables whose value says something about the terminal, the
// language or a tool's behaviour, and passes as it is. A star at the end
// stands for any rest.
var envPlain = strings.Fields(`
	LANG LANGUAGE LC_* TZ TERM COLORTERM NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE CI
	LESS LS_COLORS SOURCE_DATE_EPOCH
	GOFLAGS GOOS GOARCH GOAMD64 GOARM GOEXPERIMENT GOTOOLCHAIN GOWORK GO111MODULE CGO_ENABLED
	RUSTUP_TOOLCHAIN CARGO_TERM_COLOR PYENV_VERSION RBENV_VERSION NODENV_VERSION ASDF_*_VERSION CONDA_DEFAULT_ENV
	PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONIOENCODING PYTHONUTF8
`)

// envPaths are variables that name places. They pass when every place they
// name is there inside, or lies where the sandbox itself writes.
var envPaths = strings.Fields(`
	GOROOT GOPATH GOMODCACHE GOBIN CARGO_HOME RUSTUP_HOME NVM_DIR NVM_BIN FNM_DIR VOLTA_HOME N_PREFIX PNPM_HOME
	BUN_INSTALL DENO_INSTALL PYENV_ROOT RBENV_ROOT NODENV_ROOT GOENV_ROOT GEM_HOME GEM_PATH ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR
	PROTO_HOME SDKMAN_DIR JAVA_HOME JDK_HOME KOTLIN_HOME MAVEN_HOME M2_HOME GRADLE_HOME CONDA_PREFIX CONDA_EXE MAMBA_ROOT_PREFIX VIRTUAL_ENV
	PIPX_HOME RYE_HOME OPAMROOT ELAN_HOME DOTNET_ROOT HOMEBREW_PREFIX HOMEBREW_CELLAR HOMEBREW_REPOSITORY LOCALE_ARCHIVE
	TERMINFO TERMINFO_DIRS SSL_CERT_FILE SSL_CERT_DIR NIX_SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE
`)

// envCommands are variables whose value is a command line. They pass when the
// command is there inside.
var envCommands = []string{"EDITOR", "VISUAL", "PAGER", "MANPAGER", "GIT_EDITOR", "GIT_PAGER"}

// maxEnvValue bounds the value of a variable that passes unasked, in bytes.
const maxEnvValue = 8192

// parseEnv reads NAME=VALUE lines; the last one of a name counts.
func parseEnv(env []string) map[string]string {
	m := make(map[string]string, len(env))
	for _, kv := range env {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			m[name] = value
		}
	}
	return m
}

// environ gives the command's environment. searchPath is PATH as it is inside.
func (b *builder) environ(in *insider, searchPath []string) ([]string, error) {
	env := map[string]string{
		"PATH":    strings.Join(searchPath, ":"),
		"HOME":    b.homeValue,
		"USER":    b.in.Username,
		"LOGNAME": b.in.Username,
		"SHELL":   b.shell,
		"TMPDIR":  "/tmp",
	}
	for _, name := range slices.Sorted(maps.Keys(b.host)) {
		value := b.host[name]
		if _, ours := env[name]; ours || value == "" && name != "NO_COLOR" {
			continue
		}
		switch {
		case matchesAny(name, envPlain):
		case matchesAny(name, envPaths):
			if p := b.firstMissing(in, value); p != "" {
				b.note(name, "does not pass: "+p+" is not inside")
				continue
			}
		case matchesAny(name, envCommands):
			command, _, _ := strings.Cut(strings.TrimSpace(value), " ")
			if !b.runs(in, command, searchPath) {
				b.note(name, "does not pass: "+quote(command)+" is not inside")
				continue
			}
		default:
			continue
		}
		if len(value) > maxEnvValue || strings.IndexFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) >= 0 {
			b.note(name, "does not pass: its value is too long or holds control characters")
			continue
		}
		env[name] = value
	}
	for _, s := range b.in.SetEnv {
		name, value, set := strings.Cut(s, "=")
		if err := CheckEnvName(name); err != nil {
			return nil, err
		}
		if strings.ContainsRune(value, 0) {
			return nil, bailey.Errorf(bailey.CodeUsage, "set the variable "+quote(name), "", "its value holds a NUL byte")
		}
		if !set {
			var ok bool
			if value, ok = b.host[name]; !ok {
				b.note(name, "is not set here, so --env "+name+" passes nothing")
				continue
			}
		}
		env[name] = value
	}
	env["BAILEY"] = "1"
	out := make([]string, 0, len(env))
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out, nil
}

// CheckEnvName says whether name can be the name of a variable that --env
// sets. BAILEY is not for anybody else to set.
func CheckEnvName(name string) error {
	const what = "read --env"
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return bailey.Errorf(bailey.CodeUsage, what, "write --env NAME or --env NAME=VALUE", "%s is not the name of a variable", quote(name))
	}
	if name == "BAILEY" {
		return bailey.Errorf(bailey.CodeUsage, what, "choose another name", "BAILEY marks the inside of a sandbox and cannot be set")
	}
	return nil
}

// matchesAny says whether name is in the list. A star stands for any letters.
func matchesAny(name string, list []string) bool {
	for _, s := range list {
		if s == name {
			return true
		}
		if strings.ContainsRune(s, '*') {
			if starMatch(s, name) {
				return true
			}
		}
	}
	return false
}

// firstMissing gives the first place in value, a list parted by colons, that a
// process inside will not find; "" if all are there.
func (b *builder) firstMissing(in *insider, value string) string {
	for _, p := range strings.Split(value, ":") {
		if !path.IsAbs(p) {
			return quote(p)
		}
		// Below the home and in the workspace a tool may make what it needs.
		real, _, rest := in.find(path.Clean(p))
		if rest != "" && !(b.home != "" && within(real, b.home)) && !within(real, b.ws) {
			return p
		}
	}
	return ""
}

// runs says whether command is found inside.
func (b *builder) runs(in *insider, command string, searchPath []string) bool {
	if path.IsAbs(command) {
		return in.exists(path.Clean(command))
	}
	if command == "" || strings.ContainsRune(command, '/') {
		return false
	}
	for _, dir := range searchPath {
		if in.exists(path.Join(dir, command)) {
			return true
		}
	}
	return false
}
