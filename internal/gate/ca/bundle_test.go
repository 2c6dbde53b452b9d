package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"strconv"
	"strings"
	"testing"

	"software.sslmate.com/src/go-pkcs12"
)

// byPackagePEM is Bundle as package pem makes it.
func byPackagePEM(parts ...[]byte) []byte {
	var out bytes.Buffer
	seen := map[string]bool{}
	for _, part := range parts {
		for b, rest := pem.Decode(part); b != nil; b, rest = pem.Decode(rest) {
			if b.Type == "CERTIFICATE" && !seen[string(b.Bytes)] {
				seen[string(b.Bytes)] = true
				pem.Encode(&out, &pem.Block{Type: b.Type, Bytes: b.Bytes})
			}
		}
	}
	return out.Bytes()
}

// FuzzBundle: however certificates are written, what is read is what package
// pem reads.
func FuzzBundle(f *testing.F) {
	a, b := authority(f).Certificate(), authority(f).Certificate()
	body := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(string(a), beginning), ending), "\n", "")
	for _, text := range []string{
		"", string(a) + string(b) + string(a), "# one\n" + string(a) + "\n# two\n\n" + string(b),
		strings.ReplaceAll(string(a), "\n", "\r\n"), beginning + body + "\n" + ending, beginning + body + "\n\n" + ending,
		beginning + body[:60] + "\n" + body[60:] + "\n" + ending, beginning + "Key: value\n\n" + body + "\n" + ending,
		strings.ReplaceAll(string(a), "CERTIFICATE", "TRUSTED CERTIFICATE") + string(b), string(a[:90]) + string(b), "x" + string(a),
		strings.Replace(string(a), "\n-----END", "\r\n-----END", 1), beginning + ending + string(b), strings.TrimSuffix(string(a), "\n"),
		beginning + "AB==\n" + ending, beginning + "A===\n" + ending + string(a),
	} {
		f.Add([]byte(text), []byte(b))
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		if got, want := Bundle(one, two), byPackagePEM(one, two); !bytes.Equal(got, want) {
			t.Errorf("of %q and %q:\n%q\n%q", one, two, got, want)
		}
	})
}

// TestJavaStore: it is, to the byte, what a library of its own makes that parses
// all certificates; what is none is left out.
func TestJavaStore(t *testing.T) {
	bundle := Bundle(authority(t).Certificate(), authority(t).Certificate())
	if roots, err := SystemRoots(); err == nil {
		bundle = Bundle(bundle, roots)
	}
	var entries []pkcs12.TrustStoreEntry
	for b, rest := pem.Decode(bundle); b != nil; b, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(b.Bytes); err == nil {
			entries = append(entries, pkcs12.TrustStoreEntry{Cert: c, FriendlyName: "bailey-" + strconv.Itoa(len(entries))})
		}
	}
	want, err := pkcs12.Passwordless.EncodeTrustStoreEntries(entries, "")
	if err != nil {
		t.Fatal(err)
	}
	none := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("\x30\x03\x02\x01\x01")})
	if got := JavaStore(append(none, bundle...)); !bytes.Equal(got, want) {
		t.Errorf("%d bytes, and not the %d that were to be", len(got), len(want))
	}
}

// TestWith: with the help of what was made before comes the same as without, and
// nobody's certificate gets into another one's bundle.
func TestWith(t *testing.T) {
	one, err := New("one")
	if err != nil {
		t.Fatal(err)
	}
	two, err := New("two")
	if err != nil {
		t.Fatal(err)
	}
	text := append([]byte("# a comment\n"), two.Certificate()...)
	for range 2 {
		for _, a := range []*Authority{one, two, one} {
			for _, text := range [][]byte{text, nil, []byte("no certificate"), one.Certificate()} {
				if got, want := with(text, a.pem), Bundle(text, a.pem); !bytes.Equal(got, want) {
					t.Errorf("%q with %s:\n%s\nand not\n%s", text, a.cert.Subject.CommonName, got, want)
				}
			}
		}
	}
	var k bundles
	for i := range 40 {
		k.bundle(append(bytes.Repeat([]byte{'x'}, maxKnown/8), byte(i)))
	}
	if len(k.list) > 8 || k.size > maxKnown {
		t.Errorf("%d texts of %d bytes are kept", len(k.list), k.size)
	}
}
