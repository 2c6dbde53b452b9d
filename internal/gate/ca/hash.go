package ca

import (
	"bytes"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"fmt"
	"strings"
)

// HashName gives the file name under which OpenSSL looks for an authority in a
// folder: the hash of its subject's canonical form and ".0". The form is that
// of X509_NAME_hash_ex of OpenSSL 1.0.0 and later: each value in UTF-8, lower
// case, white space collapsed, without the outer sequence; the hash is the
// first four bytes of its SHA-1, as a little-endian number.
func HashName(cert *x509.Certificate) (string, error) {
	var name pkix.RDNSequence
	if rest, err := asn1.Unmarshal(cert.RawSubject, &name); err != nil || len(rest) > 0 {
		return "", fmt.Errorf("the subject cannot be read")
	}
	type pair struct {
		Type  asn1.ObjectIdentifier
		Value string `asn1:"utf8"`
	}
	var form bytes.Buffer
	for _, set := range name {
		var pairs []pair
		for _, p := range set {
			s, ok := p.Value.(string)
			if !ok {
				return "", fmt.Errorf("the subject has a value that is no text")
			}
			pairs = append(pairs, pair{p.Type, canonical(s)})
		}
		b, err := asn1.MarshalWithParams(pairs, "set")
		if err != nil {
			return "", err
		}
		form.Write(b)
	}
	sum := sha1.Sum(form.Bytes())
	return fmt.Sprintf("%08x.0", binary.LittleEndian.Uint32(sum[:])), nil
}

// canonical lowers ASCII letters and collapses ASCII white space.
func canonical(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }), " ")
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}
