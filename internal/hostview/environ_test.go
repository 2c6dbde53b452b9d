package hostview

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestEnvironment(t *testing.T) {
	root := plant(t, debian+`
		usr/bin/vim
		usr/bin/less
		usr/local/go/bin/go
		home/u/.cargo/bin/cargo
		home/u/.rustup/x = x
		home/u/.ssh/id = x`)
	in := inputFor(root, "/usr/local/go/bin:/home/u/.cargo/bin:/usr/bin:/bin")
	in.Env = append(in.Env,
		"USER=someone-else", "LOGNAME=x", "PWD=/home/u", "OLDPWD=/home/u/secret", "TMPDIR=/run/user/1000", "MAIL=/var/mail/u", "BAILEY=no",
		"TERM=xterm-256color", "COLORTERM=truecolor", "LC_ALL=C", "LC_PAPER=de_DE.UTF-8", "TZ=Europe/Berlin", "NO_COLOR=", "CI=true",
		"GOROOT=/usr/local/go", "GOPATH=/home/u/go", "CARGO_HOME=/home/u/.cargo", "RUSTUP_HOME=/home/u/.rustup", "JAVA_HOME=/opt/jdk",
		"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "NVM_DIR=relative", "VIRTUAL_ENV=/home/u/proj/.venv", "TERMINFO_DIRS=/usr/share:/nowhere",
		"EDITOR=vim -n", "VISUAL=code --wait", "PAGER=/usr/bin/less", "GIT_EDITOR=./evil",
		"LANGUAGE=en\x1b[31m", "LESS="+strings.Repeat("x", maxEnvValue+1),
		"GITHUB_TOKEN=t", "AWS_ACCESS_KEY_ID=t", "AWS_PROFILE=t", "ANTHROPIC_API_KEY=t", "OPENAI_API_KEY=t", "NPM_TOKEN=t", "SSH_AUTH_SOCK=/run/ssh",
		"SSH_CONNECTION=1.2.3.4", "DBUS_SESSION_BUS_ADDRESS=unix:", "XDG_RUNTIME_DIR=/run/user/1000", "WAYLAND_DISPLAY=w", "DISPLAY=:0", "XAUTHORITY=/x",
		"LD_PRELOAD=/evil.so", "LD_LIBRARY_PATH=/evil", "PYTHONPATH=/evil", "NODE_OPTIONS=--require /evil", "BASH_ENV=/evil", "ENV=/evil", "PROMPT_COMMAND=evil",
		"http_proxy=http://u:p@h", "HTTPS_PROXY=http://u:p@h", "GOPROXY=https://u:p@h", "DOCKER_HOST=unix:///run/docker.sock", "KUBECONFIG=/x", "GPG_TTY=/dev/pts/1",
		"GIT_SSH_COMMAND=ssh -i /home/u/.ssh/id", "GIT_ASKPASS=/x", "SECRET=hunter2", "LC_=x", "=bad", "novalue", "PIP_INDEX_URL=https://u:p@h",
	)
	in.SetEnv = []string{"SECRET", "ABSENT", "NEW=a=b", "TERM=dumb", "EMPTY="}
	v := compute(t, in)
	want := []string{
		"BAILEY=1", "CARGO_HOME=/home/u/.cargo", "CI=true", "COLORTERM=truecolor", "EDITOR=vim -n", "EMPTY=", "GOPATH=/home/u/go", "GOROOT=/usr/local/go",
		"HOME=/home/u", "LANG=C.UTF-8", "LC_=x", "LC_ALL=C", "LC_PAPER=de_DE.UTF-8", "LOGNAME=u", "NEW=a=b", "NO_COLOR=", "PAGER=/usr/bin/less",
		"PATH=/usr/local/go/bin:/home/u/.cargo/bin:/usr/bin:/bin", "RUSTUP_HOME=/home/u/.rustup", "SECRET=hunter2", "SHELL=/bin/bash",
		"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "TERM=dumb", "TMPDIR=/tmp", "TZ=Europe/Berlin", "USER=u", "VIRTUAL_ENV=/home/u/proj/.venv",
	}
	if !slices.Equal(v.Env, want) {
		t.Errorf("the environment inside is\n%s\nnot\n%s", strings.Join(v.Env, "\n"), strings.Join(want, "\n"))
	}
	for _, n := range [][2]string{{"JAVA_HOME", "/opt/jdk"}, {"NVM_DIR", "relative"}, {"TERMINFO_DIRS", "/nowhere"}, {"VISUAL", "code"}, {"GIT_EDITOR", "evil"},
		{"LANGUAGE", "control"}, {"LESS", "too long"}, {"ABSENT", "not set"}} {
		if !hasNote(v, n[0], n[1]) {
			t.Errorf("no note on %s that says %q", n[0], n[1])
		}
	}
}

func TestShell(t *testing.T) {
	root := plant(t, debian+"home/u/.nix/zsh\nusr/bin/zsh")
	for shell, want := range map[string]string{"/usr/bin/zsh": "/usr/bin/zsh", "/home/u/.nix/zsh": "/bin/bash", "zsh": "/bin/bash", "": "/bin/bash"} {
		in := inputFor(root, "/usr/bin")
		in.Env = append(in.Env, "SHELL="+shell)
		v := compute(t, in)
		if env(v, "SHELL") != want {
			t.Errorf("SHELL=%s becomes %s, not %s", shell, env(v, "SHELL"), want)
		}
		if !strings.Contains(content(v, "/etc/passwd"), "u:x:1000:1000::/home/u:"+want+"\n") {
			t.Errorf("passwd is\n%s", content(v, "/etc/passwd"))
		}
	}
}

func content(v View, target string) string {
	for _, e := range v.Entries {
		if e.Target == target {
			return string(e.Content)
		}
	}
	return ""
}

func TestGeneratedFiles(t *testing.T) {
	root := plant(t, debian)
	in := inputFor(root, "/usr/bin")
	in.GitName, in.GitEmail = `A "B" \ C`, "a@example.org"
	v := compute(t, in)
	for target, lines := range map[string][]string{
		"/etc/passwd":     {"u:x:1000:1000::/home/u:/bin/bash", "root:x:0:0::/root:/bin/sh", "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin"},
		"/etc/group":      {"u:x:1000:", "root:x:0:", "nogroup:x:65534:"},
		"/etc/hosts":      {"127.0.0.1\tlocalhost", "127.0.1.1\tbailey"},
		"/etc/hostname":   {"bailey"},
		"/etc/machine-id": {strings.Repeat("0", 32)},
		"/etc/gitconfig":  {`	directory = "/home/u/proj"`, `	name = "A \"B\" \\ C"`, `	email = "a@example.org"`},
	} {
		have := strings.Split(content(v, target), "\n")
		for _, line := range lines {
			if !slices.Contains(have, line) {
				t.Errorf("%s has no line %q but is\n%s", target, line, content(v, target))
			}
		}
	}
	for _, account := range []struct {
		uid, gid int
		name     string
		first    string
	}{{0, 0, "root", "root:x:0:0::/root:"}, {65534, 65534, "nobody", "nobody:x:65534:65534::/home/u:"}, {33, 33, "web", "web:x:33:33::/home/u:"}} {
		in.UID, in.GID, in.Username = account.uid, account.gid, account.name
		in.Home = "/home/u"
		if account.uid == 0 {
			in.Home = "/root"
		}
		v := compute(t, in)
		names, ids := map[string]bool{}, map[string]bool{}
		for i, line := range strings.Split(strings.TrimSpace(content(v, "/etc/passwd")), "\n") {
			f := strings.Split(line, ":")
			if len(f) != 7 || names[f[0]] || ids[f[2]] {
				t.Errorf("line %q is malformed or a repetition", line)
			}
			if names[f[0]], ids[f[2]] = true, true; i == 0 && !strings.HasPrefix(line, account.first) {
				t.Errorf("the first line is %q", line)
			}
		}
	}
	in.MachineID = ""
	a, err := Compute(in)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Compute(in)
	if err != nil {
		t.Fatal(err)
	}
	if id := content(a, "/etc/machine-id"); id == content(b, "/etc/machine-id") || len(id) != 33 {
		t.Errorf("machine ids are %q", id)
	}
}

// TestProfileKeepsPath runs the generated profile in a real login shell.
func TestProfileKeepsPath(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs tool sh")
	}
	for path, want := range map[string]string{"/a/b:/usr/bin": "/a/b:/usr/bin", "": defaultPath} {
		cmd := exec.Command(sh, "-c", profile+`echo "$PATH"`)
		cmd.Env = []string{"PATH=" + path}
		out, err := cmd.Output()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("with PATH=%q the profile gives %q, %v", path, out, err)
		}
	}
}

// TestGitConfigIsRead lets the real git read what was generated.
func TestGitConfigIsRead(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs tool git")
	}
	const dir, name = "/home/u/a b\\c\"d#e;f", `Ann "Q" \ O'Brien ; # x`
	for key, want := range map[string]string{"user.name": name, "user.email": "", "safe.directory": dir + "\n" + dir + "/*"} {
		cmd := exec.Command(git, "config", "--file", "-", "--get-all", key)
		cmd.Stdin = strings.NewReader(gitconfig(true, dir, name, ""))
		out, _ := cmd.Output()
		if got := strings.TrimSuffix(string(out), "\n"); got != want {
			t.Errorf("git reads %s as %q, not %q", key, got, want)
		}
	}
}

// FuzzPath puts any PATH and any link on a host: nothing secret may show, and
// nothing may fail.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/usr/bin:/bin", "", ":::", "/home/u/.cargo/bin:/home/u/l", "/home/u/l/bin:/home/u/../u/l", "/proc/self/root/usr/bin", "//usr//bin/./", "/opt/x/bin"} {
		f.Add(s, "/home/u/.ssh")
		f.Add(s, "../../etc")
	}
	// Each worker is a process of its own that runs one input after the other.
	root := plant(f, debian+"home/u/.cargo/bin/cargo\nhome/u/.ssh/bin/id = CANARY\nhome/u/.local/bin/x\nopt/x/bin/y\nopt/x/lib/z = z")
	f.Fuzz(func(t *testing.T, pathVar, link string) {
		if strings.ContainsAny(link, "\x00\n") || link == "" || len(link) > 200 || strings.ContainsRune(pathVar, 0) {
			return
		}
		plantLink(t, root, "home/u/l", link)
		plantLink(t, root, "home/u/.local/bin/l", link)
		v, err := Compute(inputFor(root, pathVar))
		if err != nil {
			t.Fatal(err)
		}
		checkShape(t, root, v)
		if found := canaries(t, root, v); len(found) > 0 {
			t.Errorf("secrets can be read inside: %q", found)
		}
	})
}
