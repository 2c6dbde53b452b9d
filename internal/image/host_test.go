package image

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"golang.org/x/sys/unix"
)

const canary = "c4n4ry-0f-4-s3cr3t"

// fakeHost is a host with every kind of secret in it, at its usual place and
// inside of what the template takes.
func fakeHost(t *testing.T) host {
	t.Helper()
	root := filepath.Join(t.TempDir(), "host")
	put := func(mode fs.FileMode, name, content string) {
		t.Helper()
		p := filepath.Join(root, name)
		writeFile(t, p, []byte(content))
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
	}
	put(0o755, "usr/bin/bash", "#!")
	put(0o644, "var/lib/dpkg/status", "Package: x\n")
	for name, to := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "/usr/lib64", "etc/localtime": "/usr/share/zoneinfo/UTC",
		"etc/os-release": "../usr/lib/os-release", "etc/alternatives/cc": "/usr/bin/gcc", "etc/ssl/certs/0.0": "a.pem"} {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "sbin"), 0o755); err != nil { // not merged
		t.Fatal(err)
	}
	// What is wanted.
	put(0o644, "etc/passwd", "root:"+canary+":0:0:"+canary+":/root:/bin/zsh\n_apt:x:42:65534:"+canary+":/nonexistent:/usr/sbin/nologin\n"+
		"+::::::\nbroken\nevil name:x:5:5::/:/bin/sh\nfar:x:x:5::/:/bin/sh\n"+canary+":x:1001:1001:Jane:/home/jane:/bin/bash\nwww-data:x:33:33::/var/www:/bin/sh\n")
	put(0o644, "etc/group", "root:x:0:"+canary+"\nshadow:x:42:"+canary+"\nwww-data:x:33:\n"+canary+":x:1001:\n")
	put(0o644, "etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
	put(0o644, "etc/ld.so.conf.d/a.conf", "/usr/local/lib\n")
	put(0o644, "etc/ssl/certs/a.pem", "-----BEGIN CERTIFICATE-----\n")
	put(0o644, "etc/python3.11/sitecustomize.py", "# x\n")
	put(0o644, "etc/java-17-openjdk/security/java.security", "#keystore.password=none\n")
	put(0o644, "etc/apt/sources.list", "deb http://deb.example.test/debian bookworm main\n")
	put(0o644, "etc/pam.d/common-password", "password\trequisite\tpam_deny.so\n")
	// Secrets at their usual places, readable for all where they often are.
	for _, name := range []string{"shadow", "gshadow", "passwd-", "shadow-", "ssh/ssh_host_ed25519_key", "ssh/sshd_config", "machine-id", "hostname", "krb5.keytab",
		"ssl/private/key.pem", "sudoers", "fstab", "crypttab", "environment", "gitconfig", "pip.conf", "npmrc", "wgetrc", "resolv.conf", "apt/auth.conf",
		"apt/auth.conf.d/x.conf", "docker/config.json", "profile.d/token.sh", "NetworkManager/wifi", "ppp/chap-secrets", "letsencrypt/live/key.pem",
		"pki/tls/private/k", "ca-certificates.key", "cron.d/job", "systemd/system/x.service", "hosts", "bash.bashrc", "profile", "maven/settings.xml", "nsswitch.conf"} {
		put(0o644, "etc/"+name, canary)
	}
	// Secrets inside of what is taken.
	put(0o600, "etc/ssl/certs/private.pem", canary)
	put(0o640, "etc/java-17-openjdk/management/jmxremote.password", canary)
	put(0o644, "etc/ssl/certs/with-key.pem", "-----BEGIN RSA PRIVATE KEY-----\n"+canary)
	put(0o644, "etc/apt/sources.list.d/private.list", "deb https://user:"+canary+"@repo.example.test/ x main\n")
	put(0o644, "etc/apt/sources.list.d/token.list", "deb https://"+canary+"@repo.example.test/ x main\n")
	put(0o644, "etc/apt/apt.conf.d/proxy", "Acquire::http::Proxy \"http://me:"+canary+"@proxy.example.test:80\";\n")
	put(0o644, "etc/yum.repos.d/x.repo", "[x]\npassword = "+canary+"\n")
	put(0o644, "etc/skel/.netrc", "machine x login y password "+canary+"\nurl=ftp://y:"+canary+"@x\n")
	put(0o644, "etc/security/limits.conf/"+canary, "")
	if err := os.Chmod(filepath.Join(root, "etc/security/limits.conf"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := mkfifo(filepath.Join(root, "etc/ssl/certs/pipe")); err != nil {
		t.Fatal(err)
	}
	return host{root, writeFile(t, filepath.Join(filepath.Dir(root), "mountinfo"), nil)}
}

func templateOf(t *testing.T, h host) (*Store, rootfs.Root) {
	t.Helper()
	s := openStore(t, filepath.Join(t.TempDir(), "store"))
	s.host = h
	return s, prepare(t, s, HostSource)
}

func TestTheTemplateTakesNoSecret(t *testing.T) {
	_, r := templateOf(t, fakeHost(t))
	files := 0
	err := filepath.WalkDir(r.Layers[0], func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to, _ := os.Readlink(p)
		var b []byte
		if d.Type().IsRegular() {
			files++
			if b, err = os.ReadFile(p); err != nil {
				return err
			}
		}
		if strings.Contains(p+to, canary) || bytes.Contains(b, []byte(canary)) {
			t.Errorf("%s holds a secret of the host", strings.TrimPrefix(p, r.Layers[0]))
		}
		return nil
	})
	if err != nil || files < 15 {
		t.Errorf("%d files looked at, %v", files, err)
	}
	left := strings.Join(r.Notes, "\n")
	for _, name := range []string{"with-key.pem", "private.list", "token.list", "apt.conf.d/proxy", "x.repo", ".netrc"} {
		if !strings.Contains(left, name) {
			t.Errorf("no note says that %s was left out", name)
		}
	}
}

func TestTheTemplateHasWhatProgramsNeed(t *testing.T) {
	h := fakeHost(t)
	s, r := templateOf(t, h)
	for name, want := range map[string]string{
		"etc/ld.so.conf.d/a.conf": "/usr/local/lib\n", "etc/apt/sources.list": "deb http://deb.example.test/debian bookworm main\n",
		"etc/python3.11/sitecustomize.py": "# x\n", "etc/java-17-openjdk/security/java.security": "#keystore.password=none\n",
		"etc/pam.d/common-password": "password\trequisite\tpam_deny.so\n", "etc/machine-id": "", "etc/resolv.conf": "",
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\n_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\nwww-data:x:33:33::/var/www:/bin/sh\n" +
			"nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\nagent:x:1000:1000::/home/agent:/bin/bash\n",
		"etc/group":  "root:x:0:\nshadow:x:42:\nwww-data:x:33:\nnogroup:x:65534:\nagent:x:1000:\n",
		"etc/shadow": "root:*:19000:0:99999:7:::\n_apt:*:19000:0:99999:7:::\nwww-data:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\nagent:*:19000:0:99999:7:::\n",
	} {
		if b, err := os.ReadFile(filepath.Join(r.Layers[0], name)); err != nil || string(b) != want {
			t.Errorf("%s holds %q (%v), want %q", name, b, err, want)
		}
	}
	for name, want := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "/usr/lib64", "etc/localtime": "/usr/share/zoneinfo/UTC",
		"etc/alternatives/cc": "/usr/bin/gcc", "var/run": "/run", "etc/mtab": "../proc/self/mounts", "etc/os-release": "../usr/lib/os-release"} {
		if to, err := os.Readlink(filepath.Join(r.Layers[0], name)); err != nil || to != want {
			t.Errorf("%s leads to %q (%v), want %q", name, to, err, want)
		}
	}
	for name, mode := range map[string]uint32{"tmp": 0o1777, "root": 0o700, "var/tmp": 0o1777, "etc": 0o755, "usr": 0o755, "etc/shadow": 0o640} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(r.Layers[0], name), &st); err != nil || st.Mode&0o7777 != mode {
			t.Errorf("%s has mode %o (%v), want %o", name, st.Mode&0o7777, err, mode)
		}
		if name == "etc/shadow" && s.ids == rootfs.IDsHost && st.Gid != 42 {
			t.Errorf("shadow belongs to group %d, want 42", st.Gid)
		}
	}
	want := []rootfs.Bind{{Source: h.root + "/sbin", Target: "/sbin"}, {Source: h.root + "/usr", Target: "/usr"}, {Source: h.root + "/var/lib/dpkg", Target: "/var/lib/dpkg"}}
	if !reflect.DeepEqual(r.Binds, want) {
		t.Errorf("binds %+v, want %+v", r.Binds, want)
	}
	if len(r.Layers) != 1 || r.Kind != rootfs.KindHost || r.IDs != s.ids {
		t.Errorf("%+v", r)
	}
}

func TestTheTemplateIsMadeOnceAndAgainWhenTheHostChanges(t *testing.T) {
	s, first := templateOf(t, fakeHost(t))
	if again := prepare(t, s, ""); first.Reused || !again.Reused || again.Digest != first.Digest {
		t.Errorf("again: %+v", again)
	}
	digests := []string{first.Digest}
	for _, change := range []func(string) error{
		func(h string) error {
			return os.WriteFile(h+"/etc/ld.so.conf.d/a.conf", []byte("/usr/local/LIB\n"), 0o644)
		},
		func(h string) error { return os.WriteFile(h+"/etc/ld.so.conf.d/b.conf", nil, 0o644) },
		func(h string) error { return os.Remove(h + "/etc/ld.so.conf.d/b.conf") },
		func(h string) error { return os.WriteFile(h+"/etc/group", []byte("audio:x:29:\n"), 0o644) },
		func(h string) error { return os.Remove(h + "/sbin") },
		func(h string) error { return os.Chmod(h+"/etc/apt/sources.list", 0o600) },
	} {
		if err := change(s.host.root); err != nil {
			t.Fatal(err)
		}
		r := prepare(t, s, "")
		if r.Reused || r.Digest == digests[len(digests)-1] {
			t.Errorf("a change of the host was not seen: %+v", r)
		}
		digests = append(digests, r.Digest)
	}
	if digests[1] != digests[3] {
		t.Errorf("the same host gives %s and %s", digests[1], digests[3])
	}
	wantClean(t, s.dir)
}

func TestMountsBelowUsrAreShownToo(t *testing.T) {
	h := fakeHost(t)
	for _, d := range []string{"usr/local/my tools", "usr/secret"} {
		if err := os.MkdirAll(filepath.Join(h.root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(h.root, "usr/secret"), 0o700); err != nil {
		t.Fatal(err)
	}
	line := "36 35 98:0 / %s rw,noatime - ext3 /dev/root rw\n"
	writeFile(t, h.mountinfo, []byte(fmt.Sprintf(line, "/")+fmt.Sprintf(line, h.root+`/usr/local/my\040tools`)+fmt.Sprintf(line, h.root+"/usr/secret")+
		fmt.Sprintf(line, h.root+"/usr/bin/bash")+fmt.Sprintf(line, h.root+"/etc")))
	_, r := templateOf(t, h)
	if !slices.Contains(r.Binds, rootfs.Bind{Source: h.root + "/usr/local/my tools", Target: "/usr/local/my tools"}) || len(r.Binds) != 4 {
		t.Errorf("binds %+v", r.Binds)
	}
	if n := strings.Join(r.Notes, "\n"); !strings.Contains(n, "/usr/secret") || !strings.Contains(n, "/usr/bin/bash") {
		t.Errorf("notes %q do not tell what is left out", n)
	}
}

func TestHostsThatGiveNoTemplate(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "store"))
	s.host = host{t.TempDir(), "/proc/self/mountinfo"}
	_, err := s.Prepare(context.Background(), "")
	wantCode(t, err, bailey.CodeNotAvailable)

	h := fakeHost(t)
	writeFile(t, h.mountinfo, []byte("36 35 98:0 / / rw,noatime - ext3 /dev/root rw\nshort\n"))
	s.host = h // a mount that is overlooked would be missing from the view
	_, err = s.Prepare(context.Background(), "")
	wantCode(t, err, bailey.CodeNotAvailable)

	h = fakeHost(t)
	inside := openStore(t, filepath.Join(h.root, "usr/share/store"))
	inside.host = h
	_, err = inside.Prepare(context.Background(), "")
	wantCode(t, err, bailey.CodeStorage)
}

// TestTheTemplateOfThisHost looks at the real thing.
func TestTheTemplateOfThisHost(t *testing.T) {
	_, r := templateOf(t, thisHost())
	secrets := map[string]string{} // text -> where it is
	remember := func(path string, lines bool) {
		b, err := os.ReadFile(path)
		if err != nil {
			return // not there, or not ours to read, and so not to copy
		}
		text := strings.TrimSpace(string(b))
		if !lines {
			secrets[text] = path
			return
		}
		for l := range strings.Lines(text) {
			if f := strings.Split(l, ":"); len(f) > 1 && len(f[1]) > 12 {
				secrets[f[1]] = path
			}
		}
	}
	for _, p := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		remember(p, false)
	}
	for _, p := range []string{"/etc/shadow", "/etc/gshadow", "/etc/shadow-"} {
		remember(p, true)
	}
	for _, pattern := range []string{"/etc/ssh/*_key", "/etc/ssl/private/*", "/root/.ssh/*", "/etc/apt/auth.conf*"} {
		found, _ := filepath.Glob(pattern)
		for _, p := range found {
			remember(p, false)
		}
	}
	delete(secrets, "")
	err := filepath.WalkDir(r.Layers[0], func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		for text, where := range secrets {
			if bytes.Contains(b, []byte(text)) {
				t.Errorf("%s has content of %s", p, where)
			}
		}
		return err
	})
	if err != nil && os.Geteuid() == 0 {
		t.Error(err)
	}
}

// TestToolsWorkInTheTemplate runs the host's tools in the real template.
func TestToolsWorkInTheTemplate(t *testing.T) {
	_, r := templateOf(t, thisHost())
	root := mounted(t, r)
	for _, m := range []struct{ source, at, kind string }{{"proc", "proc", "proc"}, {"/dev", "dev", ""}} {
		var flags uintptr
		if m.kind == "" {
			flags = unix.MS_BIND
		}
		at := filepath.Join(root, m.at)
		if err := unix.Mount(m.source, at, m.kind, flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	for _, c := range []struct{ tool, script, want string }{
		{"/bin/sh", "echo ok; id -un; cd ~; pwd", "ok\nroot\n/root"},
		{"/bin/bash", "bash -lc 'echo $HOME; getent passwd agent >/dev/null && su agent -s /bin/sh -c id\\ -un'", "/root\nagent"},
		{"/usr/bin/python3", "python3 -c 'import ssl,pwd,tempfile; print(pwd.getpwuid(1000).pw_name); ssl.create_default_context(); tempfile.mkdtemp()'", "agent"},
		{"/usr/bin/gcc", "printf '#include <stdio.h>\nint main(void){puts(\"compiled\");}' > /tmp/a.c && gcc -o /tmp/a /tmp/a.c && /tmp/a", "compiled"},
		{"/usr/bin/git", "git init -q /tmp/g && cd /tmp/g && git status --short && git branch --show-current | grep -c .", "1"},
		{"/usr/bin/node", "node -e 'console.log(require(\"os\").userInfo().username)'", "root"},
		{"/usr/bin/java", "java -version 2>&1 | grep -ci version", "1"},
		{"/usr/bin/perl", "perl -MPOSIX -e 'print getcwd()'", "/"},
		{"/usr/bin/dpkg", "dpkg -s base-files | grep ^Status && dpkg --audit", "Status: install ok installed"},
		{"/usr/bin/apt-get", "apt-get --no-download -s check >/dev/null && echo consistent", "consistent"},
		{"/usr/sbin/useradd", "useradd -m new && id -un 1001 && ls -d /home/new", "new\n/home/new"},
		{"/usr/bin/update-alternatives", "update-alternatives --list awk | head -1 | grep -c awk", "1"},
		{"/usr/bin/touch", "touch /usr/bin/mine /usr/local/lib/mine && ls /usr/bin/mine", "/usr/bin/mine"},
	} {
		t.Run(filepath.Base(c.tool), func(t *testing.T) {
			if _, err := os.Stat(c.tool); err != nil {
				t.Skip("needs tool ", filepath.Base(c.tool))
			}
			cmd := exec.Command("/bin/sh", "-c", c.script)
			cmd.Dir, cmd.Env = "/", append(r.Config.Env, "HOME=/root")
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
			out, err := cmd.CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != c.want {
				t.Errorf("%q, %v; want %q", out, err, c.want)
			}
		})
	}
	if _, err := os.Lstat("/usr/bin/mine"); err == nil {
		t.Error("a write below /usr reached the host")
	}
}
