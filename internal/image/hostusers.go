package image

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// agentID is the user and group id of the template's ordinary user.
const agentID = 1000

// account is a user or group of the template.
type account struct {
	name        string
	id, gid     int
	home, shell string
}

// systemAccounts takes from a passwd or group file the accounts of the
// distribution: those below 1000, which packages make, by name and number. Who
// else there is, comments, members and hashes stay out. A line that is not as
// passwd(5) and group(5) say is left out: it could mean anything.
func systemAccounts(file []byte, fields int) []account {
	var out []account
	seen := map[string]bool{}
	for line := range bytes.Lines(file) {
		f := strings.Split(strings.TrimSuffix(string(line), "\n"), ":")
		if len(f) != fields || !plainName(f[0]) || seen[f[0]] {
			continue
		}
		a := account{name: f[0]}
		var err, gerr error
		a.id, err = strconv.Atoi(f[2])
		if fields == 7 {
			a.gid, gerr = strconv.Atoi(f[3])
			a.home, a.shell = f[5], f[6]
			if !plainPath(a.home) {
				a.home = "/nonexistent"
			}
			if !plainPath(a.shell) {
				a.shell = "/usr/sbin/nologin"
			}
		}
		if err != nil || gerr != nil || a.id < 0 || a.gid < 0 || a.id >= agentID || a.gid >= agentID && a.gid != 65534 {
			continue
		}
		if seen[a.name] = true; a.name != "root" {
			out = append(out, a)
		}
	}
	return out
}

func plainName(s string) bool {
	if s == "" || len(s) > 32 || s[0] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

func plainPath(s string) bool {
	return strings.HasPrefix(s, "/") && len(s) < 256 && !strings.ContainsAny(s, " \t\r\x00") && !strings.HasPrefix(s, "/home/")
}

// accountFiles gives passwd, group, shadow, gshadow, subuid and subgid. Every
// password is locked.
func accountFiles(passwd, group []byte, shell string) map[string]generated {
	users, groups := systemAccounts(passwd, 7), systemAccounts(group, 4)
	users = append([]account{{name: "root", home: "/root", shell: shell}}, users...)
	groups = append([]account{{name: "root"}}, groups...)
	add := func(list *[]account, a account) {
		for _, o := range *list {
			if o.name == a.name {
				return
			}
		}
		*list = append(*list, a)
	}
	add(&users, account{name: "nobody", id: 65534, gid: 65534, home: "/nonexistent", shell: "/usr/sbin/nologin"})
	add(&groups, account{name: "nogroup", id: 65534})
	add(&users, account{name: "agent", id: agentID, gid: agentID, home: "/home/agent", shell: shell})
	add(&groups, account{name: "agent", id: agentID})

	var pw, sh, gr, gs strings.Builder
	for _, u := range users {
		fmt.Fprintf(&pw, "%s:x:%d:%d:%s:%s:%s\n", u.name, u.id, u.gid, map[bool]string{true: "root"}[u.name == "root"], u.home, u.shell)
		fmt.Fprintf(&sh, "%s:*:19000:0:99999:7:::\n", u.name)
	}
	shadow := 0
	for _, g := range groups {
		fmt.Fprintf(&gr, "%s:x:%d:\n", g.name, g.id)
		fmt.Fprintf(&gs, "%s:*::\n", g.name)
		if g.name == "shadow" {
			shadow = g.id
		}
	}
	return map[string]generated{
		"etc/passwd":  {text: pw.String(), mode: 0o644},
		"etc/group":   {text: gr.String(), mode: 0o644},
		"etc/shadow":  {text: sh.String(), mode: 0o640, gid: shadow},
		"etc/gshadow": {text: gs.String(), mode: 0o640, gid: shadow},
		"etc/subuid":  {mode: 0o644},
		"etc/subgid":  {mode: 0o644},
	}
}

// generated is a file of the template that is not the host's.
type generated struct {
	text string
	mode int64
	gid  int
}

// settings gives the template's own files besides the accounts.
func settings() map[string]generated {
	return map[string]generated{
		"etc/hosts":         {mode: 0o644, text: "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
		"etc/hostname":      {mode: 0o644, text: "sandbox\n"},
		"etc/resolv.conf":   {mode: 0o644},
		"etc/machine-id":    {mode: 0o444}, // empty: to be filled in when somebody needs one (machine-id(5))
		"etc/fstab":         {mode: 0o644},
		"etc/environment":   {mode: 0o644},
		"etc/nsswitch.conf": {mode: 0o644, text: "passwd: files\ngroup: files\nshadow: files\ngshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n"},
		"etc/profile": {mode: 0o644, text: "PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}\nexport PATH\n" +
			"if [ -n \"${BASH_VERSION-}\" ] && [ -r /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi\n"},
		"etc/bash.bashrc": {mode: 0o644, text: "case $- in *i*) PS1='\\u@\\h:\\w\\$ ' ;; esac\n"},
	}
}

// userID finds a user in a generated passwd.
func userID(passwd, name string) (uid int) {
	sc := bufio.NewScanner(strings.NewReader(passwd))
	for sc.Scan() {
		f := strings.Split(sc.Text(), ":")
		if f[0] == name {
			uid, _ = strconv.Atoi(f[2]) // written by accountFiles
			return uid
		}
	}
	return 0
}
