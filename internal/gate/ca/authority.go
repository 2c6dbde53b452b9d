package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
)

const (
	// lifetime of an authority. A sandbox that stays may live long, and its
	// processes keep what they trusted when they began.
	lifetime = 5 * 365 * 24 * time.Hour
	// skew is how far a sandbox's clock may be behind.
	skew = time.Hour
)

// Authority is one lineage's certificate authority. It is safe for concurrent
// use.
type Authority struct {
	cert   *x509.Certificate
	pem    []byte
	leaves leaves

	mu     sync.Mutex
	scalar []byte // the private key, 32 bytes; nil once destroyed
}

// New makes an authority with a new key: ECDSA on P-256. lineage becomes part
// of its name, for whoever reads a certificate.
func New(lineage string) (*Authority, error) { return newAt(lineage, time.Now()) }

func newAt(lineage string, now time.Time) (*Authority, error) {
	fail := func(err error) (*Authority, error) {
		return nil, bailey.Errorf(bailey.CodeSetupFailed, "make a certificate authority", "", "%w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	id, err := keyID(&key.PublicKey)
	if err != nil {
		return fail(err)
	}
	name := "Bailey gate"
	if lineage != "" {
		name = short(name + " " + lineage)
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{Organization: []string{"Bailey"}, CommonName: name},
		NotBefore:             now.Add(-skew).UTC(),
		NotAfter:              now.Add(lifetime).UTC(),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		SubjectKeyId:          id,
		AuthorityKeyId:        id,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return fail(err)
	}
	scalar, err := key.Bytes()
	if err != nil {
		return fail(err)
	}
	a, err := assemble(der, scalar)
	if err != nil {
		return fail(err)
	}
	return a, nil
}

// assemble makes an authority of its certificate and key.
func assemble(der, scalar []byte) (*Authority, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("the key is not the certificate's")
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{cert: cert, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), scalar: scalar}
	a.leaves.start(leaf)
	return a, nil
}

// Certificate gives the certificate in PEM.
func (a *Authority) Certificate() []byte { return a.pem }

// X509 gives the certificate.
func (a *Authority) X509() *x509.Certificate { return a.cert }

// Marshal gives certificate and private key in PEM, for a store that seals them.
func (a *Authority) Marshal() ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, bailey.Errorf(bailey.CodeStorage, "keep the certificate authority", "", "%w", err)
	}
	key, err := a.key()
	if err != nil {
		return fail(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fail(err)
	}
	defer clear(der)
	return append(append([]byte(nil), a.pem...), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...), nil
}

// Unmarshal reads what Marshal wrote.
func Unmarshal(text []byte) (*Authority, error) {
	fail := func(err error) (*Authority, error) {
		return nil, bailey.Errorf(bailey.CodeStorage, "read the certificate authority",
			"remove the sandbox, since nothing else can speak for it", "%w", err)
	}
	cert, rest := pem.Decode(text)
	if cert == nil || cert.Type != "CERTIFICATE" {
		return fail(errors.New("it has no certificate"))
	}
	private, _ := pem.Decode(rest)
	if private == nil || private.Type != "PRIVATE KEY" {
		return fail(errors.New("it has no private key"))
	}
	defer clear(private.Bytes)
	parsed, err := x509.ParsePKCS8PrivateKey(private.Bytes)
	if err != nil {
		return fail(errors.New("its private key cannot be read"))
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return fail(errors.New("its private key is of another kind"))
	}
	scalar, err := key.Bytes()
	if err != nil {
		return fail(err)
	}
	a, err := assemble(cert.Bytes, scalar)
	if err != nil {
		return fail(err)
	}
	return a, nil
}

// Destroy overwrites the private key. What was minted is forgotten, and nothing
// can be minted any more.
func (a *Authority) Destroy() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.scalar)
	a.scalar = nil
	a.leaves.stop()
}

var errDestroyed = errors.New("the certificate authority has been destroyed")

// key gives the private key. It is rebuilt from its 32 bytes each time, so that
// these are the one lasting copy, which Destroy overwrites.
func (a *Authority) key() (*ecdsa.PrivateKey, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.scalar == nil {
		return nil, errDestroyed
	}
	return ecdsa.ParseRawPrivateKey(elliptic.P256(), a.scalar)
}

// serial gives a positive serial number of 127 random bits (RFC 5280, 4.1.2.2,
// and the CA/Browser Forum's minimum of 64).
func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b)
	b[0] = b[0]&0x7f | 0x40 // never zero, never shorter
	return new(big.Int).SetBytes(b)
}

// keyID gives a key identifier: the leftmost 160 bits of the SHA-256 of the
// public key (RFC 7093, method 1).
func keyID(key *ecdsa.PublicKey) ([]byte, error) {
	b, err := key.Bytes()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	return sum[:20], nil
}

// short cuts a common name at the 64 characters that X.520 allows.
func short(s string) string {
	if len(s) > 64 {
		return s[:64]
	}
	return s
}
