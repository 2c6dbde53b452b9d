package hostview

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// plant makes a tree below a fresh root. Each line of spec is
//
//	PATH/              a folder
//	PATH               a program (mode 0755)
//	PATH -> TEXT       a link
//	PATH = TEXT        a file (mode 0644)
//
// and may begin with a mode in octal. Parents are made as needed.
func plant(t testing.TB, spec string) string {
	t.Helper()
	root := t.TempDir()
	for _, line := range strings.Split(spec, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var mode os.FileMode
		if first, rest, ok := strings.Cut(line, " "); ok && strings.HasPrefix(first, "0") {
			n, err := strconv.ParseUint(first, 8, 32)
			if err != nil {
				t.Fatal(err)
			}
			mode, line = os.FileMode(n), rest
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		name, text, isLink := strings.Cut(line, " -> ")
		content := "#!/bin/sh\n"
		isFile := false
		if !isLink {
			if name, text, isFile = strings.Cut(line, " = "); isFile {
				content = text
			}
		}
		full := filepath.Join(root, name)
		must(os.MkdirAll(filepath.Dir(full), 0o755))
		switch {
		case isLink:
			must(os.Symlink(text, full))
		case strings.HasSuffix(line, "/"):
			must(os.MkdirAll(full, 0o755))
			if mode != 0 {
				must(os.Chmod(full, mode))
			}
		default:
			if mode == 0 {
				mode = 0o755
				if isFile {
					mode = 0o644
				}
			}
			must(os.WriteFile(full, []byte(content), 0o600))
			must(os.Chmod(full, mode))
		}
	}
	return root
}

// plantSocket makes a unix socket at p below root.
func plantSocket(t testing.TB, root, p string) {
	t.Helper()
	full := filepath.Join(root, p)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	// The name of a socket is bounded, a test's folder is not.
	dir, err := os.Open(filepath.Dir(full))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(full)))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
}

// debian is a Debian 12 with merged /usr.
const debian = `
	bin -> usr/bin
	sbin -> usr/sbin
	lib -> usr/lib
	lib64 -> usr/lib64
	usr/bin/sh
	usr/bin/bash
	usr/bin/env
	usr/bin/vi
	usr/sbin/nologin
	usr/lib/x86_64-linux-gnu/libc.so.6
	usr/lib64/ld-linux-x86-64.so.2
	usr/local/bin/
	usr/share/zoneinfo/Etc/UTC = TZif
	usr/lib/os-release = ID=debian
	etc/os-release -> ../usr/lib/os-release
	etc/localtime -> /usr/share/zoneinfo/Etc/UTC
	etc/ld.so.cache = cache
	etc/ld.so.conf = include
	etc/ld.so.conf.d/libc.conf = /usr/local/lib
	etc/ld.so.preload = CANARY-preload
	etc/alternatives/vi -> /usr/bin/vi
	etc/ssl/certs/ca-certificates.crt = cert
	etc/ssl/openssl.cnf = cnf
	0710 etc/ssl/private/
	0640 etc/ssl/private/key.pem = CANARY-sslkey
	etc/passwd = CANARY-passwd
	etc/group = CANARY-group
	0640 etc/shadow = CANARY-shadow
	0640 etc/gshadow = CANARY-gshadow
	0440 etc/sudoers = CANARY-sudoers
	etc/ssh/ssh_host_ed25519_key = CANARY-hostkey
	etc/hostname = CANARY-hostname
	etc/hosts = CANARY-hosts
	etc/resolv.conf = CANARY-resolv
	etc/nsswitch.conf = CANARY-nsswitch
	etc/machine-id = CANARY-machineid
	etc/gitconfig = CANARY-gitconfig
	etc/environment = CANARY-environment
	etc/profile = CANARY-profile
	etc/profile.d/proxy.sh = CANARY-profiled
	etc/npmrc = CANARY-npmrc
	etc/pip.conf = CANARY-pipconf
	etc/krb5.keytab = CANARY-keytab
	etc/docker/daemon.json = CANARY-docker
	etc/kubernetes/admin.conf = CANARY-kube
	etc/netplan/50.yaml = CANARY-netplan
	etc/NetworkManager/system-connections/wifi = CANARY-wifi
	etc/cron.d/job = CANARY-cron
	etc/java-17-openjdk/security/java.security = conf
	0600 etc/java-17-openjdk/management/jmxremote.password = CANARY-jmx
	etc/bash.bashrc = rc
	0600 etc/protocols = CANARY-unreadable
	usr/etc/npmrc = CANARY-usrnpmrc
	usr/local/etc/npmrc = CANARY-usrlocalnpmrc
	run/docker.sock = CANARY-run
	var/lib/docker/secret = CANARY-vardocker
	var/log/auth.log = CANARY-log
	boot/vmlinuz = CANARY-boot
	srv/data = CANARY-srv
	mnt/disk/data = CANARY-mnt
	root/.ssh/id_rsa = CANARY-rootssh
	home/other/.ssh/id_rsa = CANARY-otherssh
	home/other/bin/tool
	home/u/proj/main.go = package main
`

// plantLink makes, or replaces, a link at p below root with any text.
func plantLink(t testing.TB, root, p, text string) {
	t.Helper()
	os.Remove(filepath.Join(root, p))
	if err := os.Symlink(text, filepath.Join(root, p)); err != nil {
		t.Fatal(err)
	}
}
