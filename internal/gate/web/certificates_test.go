package web_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/web"
)

// Servers that show a wrong certificate (T7): nothing of the request reaches
// them, and the record says why.
func TestWrongCertificates(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	issue := func(of, by *x509.Certificate) *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, of, by, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	name := func(n string) pkix.Name { return pkix.Name{CommonName: n} }
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: name("root"), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-1000 * time.Hour), NotAfter: now.Add(time.Hour)}
	root = issue(root, root)
	leaf := func(host string, from, to time.Duration) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(2), Subject: name(host), DNSNames: []string{host}, NotBefore: now.Add(from), NotAfter: now.Add(to),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	}
	good := leaf("ok.test", -time.Hour, time.Hour)
	nameless := leaf("ok.test", -time.Hour, time.Hour)
	nameless.DNSNames = nil
	for _, c := range []struct {
		name string
		cert *x509.Certificate
		why  string // "": it is right
	}{
		{"right", issue(good, root), ""},
		{"expired", issue(leaf("ok.test", -48*time.Hour, -24*time.Hour), root), "expired"},
		{"not valid yet", issue(leaf("ok.test", 24*time.Hour, 48*time.Hour), root), "not valid yet"},
		{"another name", issue(leaf("other.test", -time.Hour, time.Hour), root), "another name"},
		{"a name in the subject only", issue(nameless, root), "another name"},
		{"signed by itself", issue(good, good), "does not know"},
	} {
		w := newWorld(t, allowOK)
		roots := x509.NewCertPool()
		roots.AddCert(root)
		if w.web, err = web.New(web.Options{Authority: w.sandbox, Roots: func() *x509.CertPool { return roots }}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.web.Close)
		l := listen(t)
		var seen atomic.Int64
		srv := &http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { seen.Add(1) }),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{c.cert.Raw}, PrivateKey: key}}}}
		go srv.ServeTLS(l, "", "")
		t.Cleanup(func() { srv.Close() })
		w.resolve("ok.test:443", l.Addr().String())
		resp, body := w.do(w.client(true), "GET", "https://ok.test/", nil)
		all := w.log.acts()
		if len(all) != 1 {
			t.Fatalf("%s: %+v", c.name, all)
		}
		o := w.log.ended(t, all[0].Seq)
		if c.why == "" {
			if resp.StatusCode != 200 || seen.Load() != 1 || o.Error != "" {
				t.Errorf("%s: %d %s %+v", c.name, resp.StatusCode, body, o)
			}
		} else if resp.StatusCode != 502 || resp.Header.Get("X-Bailey-Reason") != "upstream_certificate" || !strings.Contains(body, c.why) || seen.Load() != 0 || o.Error != "upstream_certificate" {
			t.Errorf("%s: %d %s %+v; the server saw %d", c.name, resp.StatusCode, body, o, seen.Load())
		}
	}
}
