package changes

import (
	"path"
	"strings"
)

// rule is one class of paths that a host executes, or obeys as if it did,
// without anybody calling them by name. Patterns are in lower case, since some
// file systems do not tell case; paths are compared so.
type rule struct {
	class string
	why   string
	names []string // base names, as path.Match takes them
	trees []string // paths of folders: "a/b" matches all below any folder a/b
	paths []string // ends of paths: "a/b" matches any file b in a folder a
}

// rules is the one table of what executes on the host. The first that matches
// names the class. Sources: the documentation of each tool named in it.
var rules = []rule{
	{class: "git_hook", why: "git runs it on commit, checkout, push and the like",
		trees: []string{".git/hooks", ".githooks", ".husky", ".git-hooks", ".hooks"}, names: []string{".huskyrc", ".huskyrc.*", "lefthook.yml", ".lefthook.yml",
			"lefthook.yaml", "lefthook.toml", "lefthook.json", "lefthook-local.yml"}},
	{class: "git_config", why: "git obeys it, and it can name programs to run (core.hooksPath, filters, aliases, pagers)",
		paths: []string{".git/config", ".git/config.worktree", ".git/commondir", ".git/gitdir"}, names: []string{".gitconfig", ".git", ".lfsconfig"}},
	{class: "git_sequence", why: "git runs the commands in it when a rebase goes on", trees: []string{".git/rebase-merge", ".git/rebase-apply"}},
	{class: "version_control", why: "that system obeys it, and it can name programs and hooks to run",
		paths: []string{".hg/hgrc", ".hg/hgrc-not-shared", ".hg/sharedpath", ".sl/config", ".jj/repo/config.toml", ".jj/repo", ".pijul/config", "_darcs/prefs/defaults"},
		names: []string{".hgrc", ".hg", ".arcconfig", ".dvc"}, trees: []string{".dvc"}},
	{class: "git_modules", why: "git submodule takes addresses, and can take commands, from it", names: []string{".gitmodules"}},
	{class: "git_attributes", why: "it chooses the filters, diff and merge drivers that git runs on files",
		names: []string{".gitattributes"}, paths: []string{".git/info/attributes"}},
	{class: "pre_commit", why: "pre-commit runs what it names on each commit",
		names: []string{".pre-commit-config.yaml", ".pre-commit-config.yml", ".pre-commit-hooks.yaml", ".overcommit.yml"}},
	{class: "direnv", why: "a shell with direnv or mise runs it on entering the folder",
		names: []string{".envrc", ".envrc.*", ".mise.toml", "mise.toml", ".mise.*.toml", "mise.*.toml", ".tool-versions", ".rtx.toml", ".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh", ".rvmrc", "devenv.yaml", "devbox.json"},
		trees: []string{".mise", ".config/mise", ".direnv", ".shadowenv.d"}, paths: []string{".config/mise.toml", "mise/config.toml"}},
	{class: "desktop", why: "a file manager that shows the folder obeys it, and it can name programs to run",
		names: []string{"*.desktop", ".directory", "desktop.ini", "autorun.inf", "*.lnk", "*.library-ms"}},
	{class: "environment", why: "tools load their environment from it, which can hold LD_PRELOAD, NODE_OPTIONS and the like",
		names: []string{".env", ".env.*", ".flaskenv"}},
	{class: "ci", why: "the build server runs it, with the project's secrets",
		trees: []string{".github/workflows", ".github/actions", ".gitea/workflows", ".forgejo/workflows", ".circleci", ".buildkite", ".woodpecker", ".teamcity", ".gitlab/ci"},
		names: []string{".gitlab-ci.yml", ".gitlab-ci.*.yml", "jenkinsfile", "jenkinsfile.*", ".travis.yml", "azure-pipelines.yml", "azure-pipelines.yaml",
			"bitbucket-pipelines.yml", ".drone.yml", ".woodpecker.yml", ".woodpecker.yaml", "appveyor.yml", ".appveyor.yml", "cloudbuild.yaml", ".cirrus.yml", "buildspec.yml", "action.yml", "action.yaml"}},
	{class: "editor", why: "an editor that opens the folder obeys it, and it can name programs to run",
		trees: []string{".vscode", ".idea", ".run", ".zed", ".fleet", ".vs", ".devcontainer", ".sublime-project", ".helix", ".nova", ".theia", ".bsp", ".metals", ".bloop", ".settings", ".vim", ".nvim"},
		names: []string{"*.code-workspace", "*.sublime-project", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".dir-locals.el", ".dir-locals-2.el", ".lvimrc", ".local.vim", ".devcontainer.json", ".project.el", ".projectile", ".project", "*.launch", "*.iml", "*.ipr",
			".ycm_extra_conf.py", ".clangd", ".luarc.json", ".luarc.jsonc", ".neoconf.json", "hie.yaml", "pyrightconfig.json"}},
	{class: "agent", why: "a coding agent obeys it: hooks, tool servers, permissions, standing instructions",
		trees: []string{".claude", ".cursor", ".windsurf", ".codex", ".gemini", ".aider", ".continue", ".roo", ".cline", ".opencode", ".amazonq", ".kiro", ".agents", ".agent", ".goose", ".crush", ".qwen", ".junie", ".trae", ".augment", ".factory", ".warp", ".openhands", ".qodo", ".mcp",
			".cursorrules", ".windsurfrules", ".clinerules", ".roorules", ".github/instructions", ".github/prompts", ".github/agents", ".github/skills", ".github/chatmodes", ".github/hooks"},
		names: []string{".mcp.json", "mcp.json", "claude.md", "claude.local.md", "agents.md", "agents.override.md", "gemini.md", ".cursorrules", ".windsurfrules", ".clinerules",
			".aider.conf.yml", ".aider*", "opencode.json", "opencode.jsonc", "qwen.md", "warp.md", "crush.json", ".crush.json", ".goosehints", ".roomodes", ".roorules*", ".rules", ".augment-guidelines", "copilot-instructions.md", "skill.md"}},
	{class: "bailey", why: "it sets flags for bailey run in this folder", names: []string{"bailey.yaml", "bailey.yml"}},
	{class: "package_scripts", why: "the package manager runs scripts that it names",
		names: []string{"package.json", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "pnpmfile.js", "composer.json", "deno.json", "deno.jsonc", "bunfig.toml",
			"binding.gyp", "pnpm-workspace.yaml", ".pnp.cjs", ".pnp.js", ".pnp.loader.mjs", "nodemon.json", "lerna.json", "nx.json", "turbo.json", ".bundle"},
		trees: []string{".yarn/releases", ".yarn/plugins", ".yarn/sdks", ".bundle"}},
	{class: "installed_code", why: "it is code that programs load without being asked to run it",
		trees: []string{"node_modules/.bin", ".venv", "venv", "virtualenv"}, names: []string{"*.pth", "sitecustomize.py", "usercustomize.py"}},
	{class: "build", why: "a build runs it",
		names: []string{"makefile", "gnumakefile", "*.mk", "makefile.*", "justfile", ".justfile", "taskfile.yml", "taskfile.yaml", "taskfile.dist.yml", "rakefile", "gemfile", "*.gemspec",
			"cmakelists.txt", "*.cmake", "cmakepresets.json", "meson.build", "build.rs", "build.zig", "build.xml", "pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle",
			"settings.gradle.kts", "*.gradle", "*.gradle.kts", "gradle.properties", "gradlew", "gradlew.bat", "mvnw", "mvnw.cmd", "*.sbt", ".sbtopts", ".jvmopts", "build.sc", "build.mill", "project.clj", "deps.edn", "bb.edn",
			"cargo.toml", "cmakeuserpresets.json", "autogen.sh", "build.ninja", "sconscript", "conanfile.py", "premake5.lua", "xmake.lua", "*.m4", "*.just", "*.rake", "guardfile", "capfile",
			"*.csproj", "*.vbproj", "*.fsproj", "*.vcxproj", "*.proj", "*.props", "*.targets", "*.sln", "*.slnx", "directory.build.rsp", "nuget.config",
			"rebar.config", "rebar.config.script", ".formatter.exs", ".iex.exs", ".erlang", ".ghci", ".ocamlinit", "dune", "dune-project", "*.cabal", "setup.hs", "stack.yaml", "cabal.project", "*.nimble", "nim.cfg", "*.nims",
			"latexmkrc", ".latexmkrc", ".luacheckrc", ".busted", "ansible.cfg", "*.tf", "terragrunt.hcl", ".buckconfig", "pants.toml", ".bazeliskrc", "docker-bake.hcl", "compose.*.yml", "compose.*.yaml",
			"skaffold.yaml", "procfile.*", "supervisord.conf", ".user.ini", "artisan", "makefile.pl", "build.pl", ".proverc", "devenv.nix", "configure", "configure.ac", "sconstruct", "wscript", "build", "build.bazel", "workspace.bazel", "module.bazel", "*.bzl",
			".bazelrc", "tiltfile", "earthfile", "dockerfile", "dockerfile.*", "*.dockerfile", "containerfile", "docker-compose*.yml", "docker-compose*.yaml", "compose.yml", "compose.yaml", "vagrantfile",
			"procfile", "flake.nix", "shell.nix", "default.nix", "mix.exs", "dub.json", "package.swift", "podfile", "fastfile", "magefile.go"},
		paths: []string{"tools/bazel", ".cargo/config", ".cargo/config.toml", "gradle/wrapper/gradle-wrapper.properties", "gradle/wrapper/gradle-wrapper.jar", ".config/dotnet-tools.json"},
		trees: []string{"magefiles", "buildsrc", "build-logic", ".mvn", "gradle/wrapper", ".terraform"}},
	{class: "python", why: "Python's tools run it on install, test or start",
		names: []string{"setup.py", "setup.cfg", "conftest.py", "pyproject.toml", "tox.ini", "noxfile.py", "pytest.ini", "tasks.py", "fabfile.py", "dodo.py", "manage.py", ".pdbrc", ".pythonrc", ".pythonrc.py",
			"pipfile", "poetry.toml", "uv.toml", ".pylintrc", "pylintrc", "pylintrc.toml", ".pylintrc.toml", "mypy.ini", ".mypy.ini", ".flake8", ".coveragerc", "ipython_config.py", "jupyter_*config.py"}},
	{class: "ruby_php_config", why: "Ruby's and PHP's tools run it, or what it names, when they start",
		names: []string{".rspec", ".rubocop.yml", ".solargraph.yml", ".simplecov", "config.ru", ".php-cs-fixer.php", ".php-cs-fixer.dist.php", "rector.php", "phpstan.neon", "phpstan.neon.dist", "phpunit.xml", "phpunit.xml.dist", "psalm.xml"}},
	{class: "javascript_config", why: "JavaScript tools run it as code when they start",
		names: []string{"*.config.js", "*.config.cjs", "*.config.mjs", "*.config.ts", "*.config.mts", "*.config.cts", ".eslintrc", ".eslintrc.*", ".babelrc", ".babelrc.*", ".prettierrc", ".prettierrc.*",
			".mocharc.*", ".stylelintrc", ".stylelintrc.*", ".commitlintrc", ".commitlintrc.*", ".releaserc", ".releaserc.*", ".swcrc", ".nycrc", ".nycrc.*", ".remarkrc", ".remarkrc.*", ".postcssrc", ".postcssrc.*", "gulpfile.*", "gruntfile.*", ".lintstagedrc*"}},
	{class: "toolchain", why: "it chooses the program or toolchain that is run in its place",
		names: []string{"rust-toolchain", "rust-toolchain.toml", ".nvmrc", ".node-version", ".ruby-version", ".python-version", ".java-version", "go.work", "global.json"}},
	{class: "shell", why: "a shell runs it when it starts or ends",
		names: []string{".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc",
			".login", ".inputrc", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".tmux.conf", ".screenrc", ".gdbinit", ".lldbinit", ".irbrc", ".pryrc", ".wgetrc", ".curlrc", ".ripgreprc", ".rprofile", ".renviron", ".rdata", ".octaverc", ".radare2rc", "*-gdb.py", "*-gdb.gdb", ".emacs", ".mailcap", ".pam_environment"},
		trees: []string{".config/fish", ".config/autostart", ".config/systemd", ".config/environment.d", ".config/nvim", ".ssh", ".config/git", ".local/bin", ".local/share/applications", ".emacs.d"}},
}

// ExecutesOnHost says whether a file at path, relative to a workspace, would
// be executed or obeyed by tools of the host without anybody calling it, and
// the class of such files it is in. It looks at the path alone.
func ExecutesOnHost(path string) (class string, ok bool) {
	if r := match(path); r != nil {
		return r.class, true
	}
	return "", false
}

func match(p string) *rule {
	p = strings.ToLower(path.Clean(strings.TrimPrefix(p, "/")))
	base := path.Base(p)
	slashed := "/" + p
	// Nested repositories keep their git folders below .git/modules and
	// .git/worktrees; what counts in .git counts there.
	inner := ""
	if _, rest, ok := strings.Cut(slashed, "/.git/"); ok {
		parts := strings.Split(rest, "/")
		for i := range parts {
			if i > 0 && (parts[0] == "modules" || parts[0] == "worktrees") {
				tail := strings.Join(parts[i:], "/")
				for _, end := range []string{"config", "config.worktree", "commondir", "gitdir", "info/attributes"} {
					if tail == end {
						inner = "/.git/" + end
					}
				}
				if (parts[i] == "hooks" || parts[i] == "rebase-merge" || parts[i] == "rebase-apply") && i+1 < len(parts) {
					inner = "/.git/" + tail
				}
			}
		}
	}
	for i := range rules {
		r := &rules[i]
		for _, t := range r.trees {
			if strings.Contains(slashed, "/"+t+"/") || inner != "" && strings.HasPrefix(inner, "/"+t+"/") ||
				strings.HasSuffix(slashed, "/"+t) { // a link or file in the folder's place
				return r
			}
		}
		for _, e := range r.paths {
			if strings.HasSuffix(slashed, "/"+e) || inner == "/"+e {
				return r
			}
		}
		// Inside .git, names mean nothing: a branch may be called Makefile.
		if strings.Contains(slashed, "/.git/") {
			continue
		}
		for _, n := range r.names {
			if n == base {
				return r
			}
			if strings.ContainsAny(n, "*?[") {
				if ok, _ := path.Match(n, base); ok {
					return r
				}
			}
		}
	}
	return nil
}

// bareWhy is the reason for files of class git_config and git_hook in a folder
// that is no .git.
const bareWhy = "git takes its folder for a repository, and obeys it there"

// inRepository gives the folder that a file belongs to if that folder is a git
// repository, whatever its name: git looks for HEAD, objects and refs in every
// folder it is called in. Files of .git itself have rules of their own.
func inRepository(p string) (dir, class string) {
	dir, base := path.Split(p)
	dir = path.Clean(dir)
	switch strings.ToLower(base) {
	case "config", "config.worktree", "commondir":
		return dir, "git_config"
	}
	if strings.EqualFold(path.Base(dir), "hooks") {
		return path.Dir(dir), "git_hook"
	}
	return "", ""
}
