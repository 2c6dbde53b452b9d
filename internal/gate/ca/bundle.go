package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"iter"
	"os"
	"slices"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/rootfiles"
)

// SystemRoots gives the host's authorities in PEM. A host without any is an
// error: servers could not be verified.
func SystemRoots() ([]byte, error) {
	_, text, err := SystemBundle()
	return text, err
}

// SystemBundle is SystemRoots with the name of the file they are in.
func SystemBundle() (name string, text []byte, err error) { return firstBundle(os.ReadFile) }

// HasCertificate tells whether there is one in a text that can be parsed.
func HasCertificate(text []byte) bool {
	for b := range blocks(text) {
		if _, err := x509.ParseCertificate(b.der); err == nil {
			return true
		}
	}
	return false
}

func firstBundle(read func(string) ([]byte, error)) (name string, text []byte, err error) {
	for _, p := range rootfiles.Bundles {
		if b, err := read(p); err == nil && bytes.Contains(b, []byte("BEGIN CERTIFICATE")) {
			return p, b, nil
		}
	}
	return "", nil, bailey.Errorf(bailey.CodeSetupFailed, "find the system's certificate authorities",
		"install the package ca-certificates", "none of the usual files is there")
}

// Bundle joins certificates in PEM, each once, in their order. What is between
// them, such as comments, is left out.
func Bundle(parts ...[]byte) []byte {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	out := bytes.NewBuffer(make([]byte, 0, size))
	seen := map[string]bool{}
	for _, part := range parts {
		for block := range blocks(part) {
			if text := block.text(); !seen[string(text)] {
				seen[string(text)] = true
				out.Write(text)
			}
		}
	}
	return out.Bytes()
}

// with adds a certificate to a bundle: Bundle(text, cert), of which all but the end
// is the same for every sandbox that has this bundle.
func with(text, cert []byte) []byte {
	base := known.bundle(text)
	// A short part of it is found ten times as fast.
	if part := cert[len(cert)/2:][:min(48, len(cert)/2)]; bytes.Contains(base, part) && bytes.Contains(base, cert) {
		return base
	}
	return append(base[:len(base):len(base)], cert...)
}

// known are the bundles that were last worked on.
var known bundles

// bundles remembers what Bundle makes of texts, up to a bound of their bytes.
type bundles struct {
	mu   sync.Mutex
	list []joined // the last used is the last
	size int
}

type joined struct{ text, out []byte }

// maxKnown bounds the texts that are remembered, in bytes; a system's has 220 KB.
const maxKnown = 8 << 20

func (k *bundles) bundle(text []byte) []byte {
	k.mu.Lock()
	for i, j := range k.list {
		if bytes.Equal(j.text, text) {
			k.list = append(slices.Delete(k.list, i, i+1), j)
			k.mu.Unlock()
			return j.out
		}
	}
	k.mu.Unlock()
	j := joined{text, Bundle(text)}
	if bytes.Equal(j.out, text) {
		j.text = j.out
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list, k.size = append(k.list, j), k.size+len(text)
	for k.size > maxKnown {
		k.size -= len(k.list[0].text)
		k.list = slices.Delete(k.list, 0, 1)
	}
	return j.out
}

// block is a certificate in PEM.
type block struct {
	der   []byte
	plain []byte // its text, if that is as pem.Encode would write it
}

func (b block) text() []byte {
	if b.plain != nil {
		return b.plain
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.der})
}

const (
	beginning = "-----BEGIN CERTIFICATE-----\n"
	ending    = "-----END CERTIFICATE-----\n"
	line      = 64 // characters of base64, RFC 7468
)

// blocks gives the certificates of a text. A system has 150 of them, nearly all
// written in one way, which takes a tenth of what package pem takes.
func blocks(text []byte) iter.Seq[block] {
	return func(yield func(block) bool) {
		for {
			if at := bytes.Index(text, []byte("-----BEGIN ")); at < 0 {
				return
			} else if at == 0 || text[at-1] == '\n' {
				if b, n := plainBlock(text[at:]); n > 0 {
					if !yield(b) {
						return
					}
					text = text[at+n:]
					continue
				}
			}
			p, rest := pem.Decode(text)
			if p == nil {
				return
			}
			// OpenSSL's TRUSTED CERTIFICATE has a tail that others cannot read.
			if p.Type == "CERTIFICATE" && !yield(block{der: p.Bytes}) {
				return
			}
			text = rest
		}
	}
}

// plainBlock reads a certificate at the beginning of text, if it is written as
// pem.Encode does, and says how long that is; 0 if it is not.
func plainBlock(text []byte) (b block, n int) {
	body, ok := bytes.CutPrefix(text, []byte(beginning))
	if !ok {
		return b, 0
	}
	size := bytes.IndexByte(body, '-')
	if size <= 0 || !bytes.HasPrefix(body[size:], []byte(ending)) {
		return b, 0
	}
	body = body[:size]
	n = len(beginning) + size + len(ending)
	joined := make([]byte, 0, size)
	for len(body) > 0 {
		k := min(line, len(body)-1)
		if k == 0 || body[k] != '\n' || bytes.ContainsAny(body[:k], "\r\n") {
			return b, 0
		}
		joined, body = append(joined, body[:k]...), body[k+1:]
	}
	k, err := base64.StdEncoding.Strict().Decode(joined, joined)
	if err != nil {
		return b, 0
	}
	return block{der: joined[:k], plain: text[:n]}, n
}
