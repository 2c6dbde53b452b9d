package internet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"sync"
	"time"
)

// Authority signs the certificates of the fake internet. It can be handed on as
// JSON.
type Authority struct {
	DER, Key []byte

	mu     sync.Mutex
	cert   *x509.Certificate
	signer *ecdsa.PrivateKey
	leaves map[string]*tls.Certificate
}

// NewAuthority makes one, valid for a day.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template("Egress suite's root")
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	a := &Authority{}
	if a.DER, err = x509.CreateCertificate(rand.Reader, t, t, key.Public(), key); err != nil {
		return nil, err
	}
	if a.Key, err = x509.MarshalECPrivateKey(key); err != nil {
		return nil, err
	}
	return a, a.load()
}

func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err)
	}
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
}

// UnmarshalJSON reads one that was handed on.
func (a *Authority) UnmarshalJSON(b []byte) error {
	var raw struct{ DER, Key []byte }
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	a.DER, a.Key = raw.DER, raw.Key
	return a.load()
}

func (a *Authority) load() (err error) {
	a.leaves = map[string]*tls.Certificate{}
	if a.signer, err = x509.ParseECPrivateKey(a.Key); err != nil {
		return err
	}
	a.cert, err = x509.ParseCertificate(a.DER)
	return err
}

// PEM gives the root certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.DER})
}

// Pool holds the root alone.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// flaw is what is wrong with a leaf.
type flaw int

const (
	sound flaw = iota
	expired
	unsigned
)

// leaf gives the certificate of a name.
func (a *Authority) leaf(name string, f flaw) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[name]; c != nil {
		return c, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template(name)
	t.DNSNames, t.KeyUsage, t.ExtKeyUsage = []string{name}, x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	parent, signer := a.cert, a.signer
	switch f {
	case expired:
		t.NotBefore, t.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
	case unsigned:
		parent, signer = t, key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	a.leaves[name] = c
	return c, nil
}
