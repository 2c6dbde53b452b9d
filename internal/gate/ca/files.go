package ca

import (
	"bytes"
	"os"
	"path"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/rootfiles"
)

// Layout describes the root file system that Files are for.
type Layout struct {
	// Dir is a folder inside the sandbox for what the variables of Env name. It
	// may be new.
	Dir string
	// Read gives the content of a file inside the sandbox, links followed within
	// it; nil is the host's, for a sandbox that shows the host's files.
	Read func(path string) ([]byte, error)
	// Has says whether there is a file that Read could read; nil asks Read.
	Has func(path string) bool
	// Glob lists files inside the sandbox by a pattern of path.Match; nil finds
	// nothing but what Read finds under a plain name.
	Glob func(pattern string) []string
	// Roots are authorities in PEM for a root that has none; nil is the host's.
	Roots []byte
}

// File is one to be put into a sandbox's root with mode 0644. Missing folders
// of its path are made with mode 0755.
type File struct {
	Path string `json:"path"`
	Data []byte `json:"data"`
}

// Files gives what makes programs of a root trust the authority: the files that
// Env names, every bundle of the distribution that is there with our
// certificate added, a hash name beside it, the folder from which the
// distribution makes its bundle anew, and Java's trust stores.
func (a *Authority) Files(l Layout) ([]File, error) {
	if !path.IsAbs(l.Dir) {
		return nil, bailey.Errorf(bailey.CodeUsage, "install the certificate authority", "", "the folder %q is no absolute path", l.Dir)
	}
	read := l.Read
	if read == nil {
		read = os.ReadFile
	}
	hash, err := HashName(a.cert)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeSetupFailed, "install the certificate authority", "", "%w", err)
	}
	_, roots, err := firstBundle(read)
	if err != nil {
		if roots = l.Roots; roots == nil {
			if roots, err = SystemRoots(); err != nil {
				return nil, err
			}
		}
	}
	all := with(roots, a.pem)
	files := []File{
		{path.Join(l.Dir, bundleName), all},
		{path.Join(l.Dir, certName), a.pem},
		{path.Join(l.Dir, hash), a.pem},
	}
	for _, p := range rootfiles.Bundles {
		text, err := read(p)
		if err != nil {
			continue
		}
		bundle := all
		if !bytes.Equal(text, roots) {
			bundle = with(text, a.pem)
		}
		files = append(files, File{p, bundle})
		switch p {
		case "/etc/ssl/certs/ca-certificates.crt":
			files = append(files, File{"/etc/ssl/certs/" + hash, a.pem},
				File{"/usr/local/share/ca-certificates/bailey.crt", a.pem}) // for update-ca-certificates
		case "/etc/pki/tls/certs/ca-bundle.crt":
			files = append(files, File{"/etc/pki/tls/certs/" + hash, a.pem},
				File{"/etc/pki/ca-trust/source/anchors/bailey.pem", a.pem}) // for update-ca-trust
		case "/etc/ssl/ca-bundle.pem":
			files = append(files, File{"/etc/pki/trust/anchors/bailey.pem", a.pem})
		}
	}
	return append(files, l.javaFiles(read, all)...), nil
}

// javaFiles gives Java's trust stores that are there, replaced.
func (l Layout) javaFiles(read func(string) ([]byte, error), all []byte) (files []File) {
	has := l.Has
	if has == nil {
		has = func(p string) bool { _, err := read(p); return err == nil }
	}
	var store []byte
	seen := map[string]bool{}
	for _, pattern := range rootfiles.JavaStores {
		found := []string{pattern}
		if strings.Contains(pattern, "*") {
			if l.Glob == nil {
				continue
			}
			found = l.Glob(pattern)
		}
		for _, p := range found {
			if seen[p] || !has(p) {
				continue
			}
			seen[p] = true
			if store == nil {
				store = JavaStore(all)
			}
			files = append(files, File{p, store})
		}
	}
	return files
}
