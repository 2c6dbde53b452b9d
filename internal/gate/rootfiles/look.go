package rootfiles

import (
	"os"
	"path/filepath"
)

// Bundles are the files in which the distributions keep all authorities, the
// likeliest first.
var Bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch, Gentoo, Alpine
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL 7 and later
	"/etc/ssl/ca-bundle.pem",                            // openSUSE
	"/etc/ssl/cert.pem",                                 // Alpine, macOS
	"/etc/pki/tls/cert.pem",                             // Fedora
	"/etc/ssl/certs/ca-bundle.crt",                      // NixOS
	"/opt/homebrew/etc/ca-certificates/cert.pem",        // Homebrew
}

// JavaStores are where Java runtimes keep their authorities: distributions'
// shared files, then each runtime's own. They are patterns of path.Match.
var JavaStores = []string{
	"/etc/ssl/certs/java/cacerts", // Debian
	"/etc/pki/ca-trust/extracted/java/cacerts",
	"/etc/pki/java/cacerts",
	"/usr/lib/jvm/*/lib/security/cacerts",
	"/usr/lib/jvm/*/jre/lib/security/cacerts",
	"/opt/*/lib/security/cacerts",
	"/opt/java/*/lib/security/cacerts", // the images eclipse-temurin
	"/usr/java/*/lib/security/cacerts",
	"/usr/local/openjdk-*/lib/security/cacerts",
	"/usr/local/openjdk-*/jre/lib/security/cacerts",
}

// maxStores bounds Java's stores of one root. A sandbox that makes more keeps
// some that do not trust the gate.
const maxStores = 64

// Seen is what a root has.
type Seen struct {
	Bundles []Bundle
	Stores  []string // Java's trust stores that are there
}

// Bundle is a file of authorities.
type Bundle struct {
	Path string
	Text []byte // at most 4 MiB
}

// Look reads a root's files of authorities. Those that cannot be read are left
// out.
func (r Root) Look() (s Seen) {
	read, has, glob := readHost, hasHost, globHost
	if len(r.Layers) > 0 {
		l := layers{r}
		read, has, glob = l.read, l.has, l.glob
	}
	for _, p := range Bundles {
		if text, err := read(p); err == nil {
			s.Bundles = append(s.Bundles, Bundle{p, text})
		}
	}
	seen := map[string]bool{}
	for _, pattern := range JavaStores {
		for _, p := range glob(pattern) {
			if !seen[p] && len(s.Stores) < maxStores && has(p) {
				seen[p] = true
				s.Stores = append(s.Stores, p)
			}
		}
	}
	return s
}

// Real gives the path without links under which p is, or would be made, inside.
// Of the host's own files it is p.
func (r Root) Real(p string) string {
	if len(r.Layers) == 0 {
		return p
	}
	return layers{r}.real(p)
}

func readHost(p string) ([]byte, error) { return readFile(p, 0) }

func hasHost(p string) bool {
	fi, err := os.Stat(p)
	return err == nil && fi.Mode().IsRegular()
}

func globHost(pattern string) []string {
	found, _ := filepath.Glob(pattern) // the patterns are ours
	return found
}
