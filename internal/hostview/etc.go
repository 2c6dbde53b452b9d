package hostview

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// etcNames is the part of /etc that a sandbox sees of the host's: what
// compilers, interpreters and libraries read, and nothing that was written for
// one machine or one person. A star matches within one name. Folders that hold
// more than that are named by their parts.
var etcNames = strings.Fields(`
	ld.so.cache ld.so.conf ld.so.conf.d ld-musl-*.path alternatives
	ssl/certs ssl/openssl.cnf ssl/cert.pem ssl/ct_log_list.cnf ssl/ca-bundle.pem ca-certificates ca-certificates.conf
	pki/ca-trust/extracted pki/ca-trust/source pki/tls/certs pki/tls/cert.pem pki/tls/openssl.cnf pki/tls/openssl.d pki/java crypto-policies gnutls
	localtime timezone zoneinfo mime.types magic magic.mime file/magic terminfo inputrc bash.bashrc bashrc bash_completion bash_completion.d
	zsh/zshenv zsh/zshrc zsh/newuser.zshrc.recommended zshenv zshrc fish/config.fish fish/conf.d manpath.config man_db.conf papersize paperspecs
	java-* java python* perl perl5 php/*/cli maven/m2.conf maven/logging maven/toolchains.xml ant ant.conf groff texmf emacs vim
	fonts gtk-2.0/gtkrc gtk-3.0/settings.ini ImageMagick-* OpenCL vulkan/icd.d glvnd
	xattr.conf protocols services rpc networks host.conf gai.conf shells login.defs mke2fs.conf
	locale.* locale.alias locale.gen locale.conf default/locale lsb-release os-release *-release debian_version
	dpkg/origins nanorc screenrc lesskey static
`)

// etcLinked are folders outside /etc and /usr that programs of the system
// cannot do without.
var etcLinked = []string{"/var/lib/texmf", "/var/lib/ghc", "/var/lib/tex-common", "/var/cache/fontconfig"}

// etcPublic are shown folders that packages fill with what is public by its
// nature, and too much of it to be looked through at every start.
var etcPublic = strings.Fields(`/etc/alternatives /etc/ssl/certs /etc/pki/ca-trust/extracted /etc/pki/ca-trust/source /etc/pki/tls/certs /etc/pki/java
	/etc/crypto-policies /etc/ca-certificates /etc/ld.so.conf.d /etc/fonts /etc/terminfo /etc/bash_completion.d /etc/perl /etc/perl5
	/etc/zoneinfo /etc/groff /etc/vulkan/icd.d /etc/glvnd /etc/OpenCL /etc/dpkg/origins /etc/texmf /etc/static`)

// maxEtcScan bounds how many names of one folder of /etc are looked at.
const maxEtcScan = 4096

// showEtc shows the named part of /etc. Files that not everybody on the host
// may read stay away, by themselves and in the folders that are shown.
func (b *builder) showEtc() {
	for _, pattern := range etcNames {
		for _, p := range b.expandLinked("/etc", pattern) {
			b.showEtcName(p)
		}
	}
	for _, p := range etcLinked {
		if fi := b.t.lstat(p); fi != nil && fi.IsDir() {
			b.put(Entry{Kind: KindBind, Target: p, Source: p, IsDir: true, ReadOnly: true, Why: "part of the system's programs"})
		}
	}
}

// expandLinked is expand for a tree whose folders may be links.
func (b *builder) expandLinked(dir, pattern string) []string {
	i := strings.LastIndexByte(pattern, '/')
	if i < 0 {
		return b.expandNames(dir, pattern)
	}
	var found []string
	for _, parent := range b.expandLinked(dir, pattern[:i]) {
		if real, fi, _, err := b.t.resolve(parent); err == nil && fi.IsDir() && real == parent {
			found = append(found, b.expandNames(parent, pattern[i+1:])...)
		} else if err == nil && fi.IsDir() && b.visible(real) {
			b.showEtcName(parent) // such as /etc/ssl -> /usr/... : as a whole, since the system shows it anyway
		}
	}
	return found
}

// expandNames matches pattern, without slashes, in the real folder dir, whose
// names are read once.
func (b *builder) expandNames(dir, pattern string) []string {
	names, ok := b.lists[dir]
	if !ok {
		for _, e := range b.t.list(dir) {
			names = append(names, e.Name())
		}
		b.lists[dir] = names // sorted
	}
	if !strings.ContainsRune(pattern, '*') {
		if _, found := slices.BinarySearch(names, pattern); !found {
			return nil
		}
		return []string{child(dir, pattern)}
	}
	var found []string
	for _, n := range names {
		if starMatch(pattern, n) {
			found = append(found, child(dir, n))
		}
	}
	return found
}

// showEtcName shows one place in /etc, given by a path whose parents are real.
func (b *builder) showEtcName(p string) {
	if _, taken := b.wants[p]; taken {
		return
	}
	real, fi, links, err := b.t.resolve(p)
	if err != nil {
		return
	}
	if len(links) > 0 && b.visible(real) && !within(real, "/etc") {
		b.links(links)
		return
	}
	if !within(real, "/etc") && !underAny(real, []string{"/usr", "/nix/store", "/gnu/store", "/run/systemd/resolve"}) {
		b.note(p, "left out: it is a link to "+real)
		return
	}
	for _, r := range hostRoot {
		if within(real, r.path) || within(r.path, real) {
			b.note(p, "left out: "+r.why)
			return
		}
	}
	if !everybodyReads(fi) {
		b.note(p, "left out: not everybody on the host may read it")
		return
	}
	b.put(Entry{Kind: KindBind, Target: p, Source: real, IsDir: fi.IsDir(), ReadOnly: true, Why: "named part of /etc"})
	if fi.IsDir() && real == p && !slices.Contains(etcPublic, p) {
		b.hideUnreadable(p, 3)
	}
}

// everybodyReads says whether others may read the file, or enter and read the
// folder.
func everybodyReads(fi fs.FileInfo) bool {
	perm := fi.Mode().Perm()
	return fi.Mode().IsRegular() && perm&0o004 != 0 || fi.IsDir() && perm&0o005 == 0o005
}

// hideUnreadable covers what lies in the shown folder dir and is not for
// everybody: through a group, the caller may read more than others do.
func (b *builder) hideUnreadable(dir string, depth int) {
	for i, e := range b.t.list(dir) {
		if e.Type()&fs.ModeSymlink != 0 {
			continue
		}
		p := child(dir, e.Name())
		fi := b.t.lstat(p)
		switch {
		case fi == nil:
		case !everybodyReads(fi) || i >= maxEtcScan || secretName(e.Name()) && !strings.HasSuffix(e.Name(), ".pem"):
			b.mask(p, "not everybody on the host may read it")
		case fi.IsDir() && depth > 0:
			b.hideUnreadable(p, depth-1)
		case fi.IsDir():
			b.mask(p, "too deep to be looked through")
		}
	}
}

// generateEtc writes the files of /etc that speak of the sandbox.
func (b *builder) generateEtc() {
	file := func(name, content string, mode fs.FileMode) {
		b.wants["/etc/"+name] = Entry{Kind: KindFile, Target: "/etc/" + name, Content: []byte(content), Mode: mode, ReadOnly: true, Why: "made for the sandbox"}
	}
	in := b.in
	file("passwd", passwd(in.UID, in.GID, in.Username, b.homeValue, b.shell), 0o644)
	file("group", group(in.GID, in.Username), 0o644)
	file("hostname", in.Hostname+"\n", 0o644)
	file("hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t"+in.Hostname+"\n", 0o644)
	file("resolv.conf", string(ResolvConf(in.NameServer)), 0o644)
	file("nsswitch.conf", nsswitch(in.NameServer), 0o644)
	file("machine-id", in.MachineID+"\n", 0o444)
	file("gitconfig", gitconfig(in.Workspace != "", b.ws, in.GitName, in.GitEmail), 0o644)
	file("profile", profile, 0o644)
	b.wants["/etc/mtab"] = Entry{Kind: KindSymlink, Target: "/etc/mtab", Link: "/proc/self/mounts", Why: "made for the sandbox"}
	b.note("/etc", "accounts, names, name servers, git's and the login shell's settings are the sandbox's own")
}

// profile keeps the PATH that a login shell starts with: the host's own would
// replace it, and the folders below the home would be lost.
const profile = `# Made for this sandbox.
if [ -z "${PATH-}" ]; then
	PATH=` + defaultPath + `
	export PATH
fi
if [ -n "${PS1-}" ] && [ -n "${BASH-}" ] && [ "$BASH" != /bin/sh ] && [ -r /etc/bash.bashrc ]; then
	. /etc/bash.bashrc
fi
`

// passwd gives the accounts: root, the user, and the names that programs look
// up. No one can log in to any of them.
func passwd(uid, gid int, name, home, shell string) string {
	var s strings.Builder
	used := map[string]bool{name: true}
	ids := map[int]bool{uid: true}
	fmt.Fprintf(&s, "%s:x:%d:%d::%s:%s\n", name, uid, gid, field(home), field(shell))
	for _, a := range []struct {
		name    string
		id      int
		home    string
		gid     int
		nologin bool
	}{
		{"root", 0, "/root", 0, false},
		{"daemon", 1, "/usr/sbin", 1, true}, {"bin", 2, "/bin", 2, true}, {"sys", 3, "/dev", 3, true},
		{"man", 6, "/var/cache/man", 12, true}, {"mail", 8, "/var/mail", 8, true}, {"www-data", 33, "/var/www", 33, true},
		{"nobody", 65534, "/nonexistent", 65534, true},
	} {
		if used[a.name] || ids[a.id] {
			continue
		}
		sh := "/usr/sbin/nologin"
		if !a.nologin {
			sh = "/bin/sh"
		}
		fmt.Fprintf(&s, "%s:x:%d:%d::%s:%s\n", a.name, a.id, a.gid, a.home, sh)
	}
	return s.String()
}

// group gives the groups that go with passwd.
func group(gid int, name string) string {
	var s strings.Builder
	used := map[string]bool{name: true}
	ids := map[int]bool{gid: true}
	fmt.Fprintf(&s, "%s:x:%d:\n", name, gid)
	for _, g := range []struct {
		name string
		id   int
	}{
		{"root", 0}, {"daemon", 1}, {"bin", 2}, {"sys", 3}, {"adm", 4}, {"tty", 5}, {"disk", 6}, {"mail", 8}, {"man", 12},
		{"www-data", 33}, {"utmp", 43}, {"staff", 50}, {"users", 100}, {"nogroup", 65534},
	} {
		if !used[g.name] && !ids[g.id] {
			fmt.Fprintf(&s, "%s:x:%d:\n", g.name, g.id)
		}
	}
	return s.String()
}

// field makes s fit a field of passwd.
func field(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ':' || r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, s)
}

// gitconfig trusts the workspace, whose files may belong to another id inside,
// and names no helper.
func gitconfig(hasWorkspace bool, workspace, name, email string) string {
	s := ""
	if hasWorkspace {
		s = "[safe]\n\tdirectory = " + gitValue(workspace) + "\n\tdirectory = " + gitValue(path.Join(workspace, "*")) + "\n"
	}
	if name != "" || email != "" {
		s += "[user]\n"
		if name != "" {
			s += "\tname = " + gitValue(name) + "\n"
		}
		if email != "" {
			s += "\temail = " + gitValue(email) + "\n"
		}
	}
	return s
}

// gitValue quotes a value as git-config(1) describes under "Values".
func gitValue(s string) string {
	return `"` + strings.NewReplacer("\\", `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(s) + `"`
}
