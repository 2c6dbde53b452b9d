package listen

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/bailey-sandbox/bailey"
)

// TLS says where certificates come from: at most one of the three.
type TLS struct {
	Cert, Key string   // files, read anew when they change
	Own       bool     // an authority in the data folder, for local use
	Domain    string   // by ACME, for this name
	Email     string   // for the ACME authority
	Directory string   // of the ACME authority; default Let's Encrypt
	Hosts     []string // names and addresses that an own certificate is for
	// Ports is a domain for whose names below it certificates are made when they are
	// asked for; "" is none. A given certificate has to be for *.Ports itself.
	Ports string
	// Decide gives an error for a name below Ports that ACME is not to be asked for.
	Decide func(ctx context.Context, name string) error
}

// Config gives the TLS configuration, nil if no certificate was asked for.
func (t TLS) Config(ctx context.Context, home string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	switch {
	case t.Cert != "" || t.Key != "":
		f := &files{cert: t.Cert, key: t.Key}
		if _, err := f.get(nil); err != nil {
			return nil, bailey.Errorf(bailey.CodeUsage, "use the certificate "+t.Cert, "give a certificate and its key as PEM files", "%w", err)
		}
		c.GetCertificate = f.get
	case t.Own:
		cert, ca, err := own(filepath.Join(home, "tls"), t.Hosts, time.Now())
		if err != nil {
			return nil, bailey.Errorf(bailey.CodeStorage, "make a certificate", "", "%w", err)
		}
		c.Certificates = []tls.Certificate{cert}
		if t.Ports != "" {
			c.GetCertificate = (&below{domain: t.Ports, ca: ca}).get
		}
	case t.Domain != "" || t.Ports != "":
		return t.acme(ctx, home)
	default:
		return nil, nil
	}
	return c, nil
}

// files is a certificate that somebody else renews.
type files struct {
	cert, key string

	mu      sync.Mutex
	stamp   [2]time.Time
	checked time.Time
	now     *tls.Certificate
}

// get gives the certificate, read anew at most every second and if the files have
// changed. A pair that does not fit, as while it is replaced, leaves the one before.
func (f *files) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != nil && time.Since(f.checked) < time.Second {
		return f.now, nil
	}
	f.checked = time.Now()
	var stamp [2]time.Time
	for i, name := range []string{f.cert, f.key} {
		fi, err := os.Stat(name)
		if err != nil {
			return f.kept(err)
		}
		stamp[i] = fi.ModTime()
	}
	if f.now != nil && stamp == f.stamp {
		return f.now, nil
	}
	c, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return f.kept(err)
	}
	f.now, f.stamp = &c, stamp
	return f.now, nil
}

func (f *files) kept(err error) (*tls.Certificate, error) {
	if f.now != nil {
		return f.now, nil
	}
	return nil, err
}

// acme has certificates made and renewed by an ACME authority. The challenge is
// answered on the daemon's own listener (TLS-ALPN), which the authority reaches at
// port 443.
func (t TLS) acme(ctx context.Context, home string) (*tls.Config, error) {
	var magic, demand *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(c certmagic.Certificate) (*certmagic.Config, error) {
			if len(c.Names) > 0 && isBelow(c.Names[0], t.Ports) {
				return demand, nil
			}
			return magic, nil
		},
	})
	context.AfterFunc(ctx, cache.Stop)
	directory := t.Directory
	if directory == "" {
		directory = certmagic.LetsEncryptProductionCA
	}
	config := func(c certmagic.Config) *certmagic.Config {
		c.Storage = &certmagic.FileStorage{Path: filepath.Join(home, "tls", "acme")}
		m := certmagic.New(cache, c)
		m.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(m, certmagic.ACMEIssuer{CA: directory, Email: t.Email, Agreed: true, DisableHTTPChallenge: true})}
		return m
	}
	magic = config(certmagic.Config{})
	demand = config(certmagic.Config{OnDemand: &certmagic.OnDemandConfig{DecisionFunc: func(ctx context.Context, name string) error {
		if !isBelow(name, t.Ports) || t.Decide == nil {
			return errors.New("it is no name of this daemon's")
		}
		return t.Decide(ctx, name)
	}}})
	if t.Domain != "" {
		if err := magic.ManageAsync(ctx, []string{t.Domain}); err != nil {
			return nil, bailey.Errorf(bailey.CodeUsage, "have a certificate made for "+t.Domain, "see that the name leads here and port 443 is reachable", "%w", err)
		}
	}
	c := magic.TLSConfig()
	c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if isBelow(hello.ServerName, t.Ports) {
			return demand.GetCertificate(hello)
		}
		return magic.GetCertificate(hello)
	}
	c.NextProtos = append([]string{"h2", "http/1.1"}, c.NextProtos...)
	return c, nil
}

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 397 * 24 * time.Hour // the most that browsers take
)

// own gives a certificate for the hosts by an authority kept in dir, which is made
// when there is none. The certificate itself is made anew at each start.
func own(dir string, hosts []string, now time.Time) (cert, ca tls.Certificate, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return cert, ca, err
	}
	if ca, err = authority(dir, now); err != nil {
		return cert, ca, err
	}
	cert, err = issue(ca, hosts, now)
	return cert, ca, err
}

// issue makes a certificate for the hosts.
func issue(ca tls.Certificate, hosts []string, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf := template("baileyd", now, leafLife)
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func authority(dir string, now time.Time) (tls.Certificate, error) {
	certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
	ca, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err == nil && now.Add(leafLife).Before(ca.Leaf.NotAfter) {
		return ca, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ca, err // a person decides about what cannot be read
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return ca, err
	}
	root := template("Bailey's own authority", now, authorityLife)
	root.IsCA, root.BasicConstraintsValid, root.MaxPathLenZero = true, true, true
	root.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return ca, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return ca, err
	}
	// The key first: a certificate without it would be an error at the next start.
	if err := write(keyFile, "PRIVATE KEY", pkcs8, 0o600); err != nil {
		return ca, err
	}
	if err := write(certFile, "CERTIFICATE", der, 0o644); err != nil {
		return ca, err
	}
	return tls.LoadX509KeyPair(certFile, keyFile)
}

func write(name, kind string, der []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func template(name string, now time.Time, life time.Duration) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // the reader never fails
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life),
	}
}
