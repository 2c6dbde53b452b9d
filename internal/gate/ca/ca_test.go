package ca

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
	"github.com/bailey-sandbox/bailey/policy"
	"software.sslmate.com/src/go-pkcs12"
)

func host(t testing.TB, s string) policy.Host {
	t.Helper()
	h, err := policy.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func authority(t testing.TB) *Authority {
	t.Helper()
	a, err := New("run 7")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestProfile holds both certificates against RFC 5280 and what strict clients
// add to it.
func TestProfile(t *testing.T) {
	a := authority(t)
	c := a.X509()
	if !c.IsCA || !c.BasicConstraintsValid || c.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign || len(c.SubjectKeyId) != 20 || !bytes.Equal(c.SubjectKeyId, c.AuthorityKeyId) {
		t.Errorf("%+v", c)
	}
	critical := func(c *x509.Certificate, id string) bool {
		for _, e := range c.Extensions {
			if e.Id.String() == id {
				return e.Critical
			}
		}
		return false
	}
	for _, name := range []string{"ok.test", "192.0.2.7", "2001:db8::7", strings.Repeat("a", 60) + ".long.test"} {
		cert, err := a.Leaf(host(t, name))
		if err != nil {
			t.Fatal(err)
		}
		l := cert.Leaf
		if l.IsCA || !critical(l, "2.5.29.15") || !critical(l, "2.5.29.19") || !critical(c, "2.5.29.15") || !critical(c, "2.5.29.19") || critical(l, "2.5.29.17") {
			t.Errorf("%s: critical extensions: %+v", name, l.Extensions)
		}
		if !bytes.Equal(l.AuthorityKeyId, c.SubjectKeyId) || len(l.SubjectKeyId) != 20 || l.KeyUsage != x509.KeyUsageDigitalSignature ||
			!slices.Equal(l.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
			t.Errorf("%s: %+v", name, l)
		}
		if d := l.NotAfter.Sub(l.NotBefore); d > 398*24*time.Hour || l.NotBefore.After(time.Now()) || l.NotBefore.Before(c.NotBefore) || l.SerialNumber.BitLen() < 64 || l.SerialNumber.Sign() <= 0 {
			t.Errorf("%s: %v, serial of %d bits", name, d, l.SerialNumber.BitLen())
		}
		if err := l.VerifyHostname(name); err != nil {
			t.Error(err)
		}
		if l.VerifyHostname("other.test") == nil {
			t.Errorf("%s is valid for another name", name)
		}
		pool := x509.NewCertPool()
		pool.AddCert(c)
		if _, err := l.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); err != nil {
			t.Error(err)
		}
		strange := x509.NewCertPool()
		strange.AddCert(authority(t).X509())
		if _, err := l.Verify(x509.VerifyOptions{Roots: strange, DNSName: name}); err == nil {
			t.Error("another lineage trusts it")
		}
	}
}

func TestLeavesAreKept(t *testing.T) {
	a := authority(t)
	now := time.Now()
	one, _ := a.leafAt(host(t, "ok.test"), now)
	if two, _ := a.leafAt(host(t, "ok.test"), now.Add(time.Hour)); two != one {
		t.Error("it was minted again")
	}
	if later, _ := a.leafAt(host(t, "ok.test"), now.Add(leafLifetime-renew+time.Hour)); later == one {
		t.Error("it was not renewed")
	}
	// A flood of names is bounded, goes on in time, and pushes out the oldest.
	for i := 0; ; i++ {
		_, err := a.leafAt(host(t, "n"+strings.Repeat("x", i%50)+"."+string(rune('a'+i/50))+".test"), now)
		if errors.Is(err, ErrBusy) {
			if i < burst-2 {
				t.Errorf("busy after %d", i)
			}
			break
		}
		if i > burst+1 {
			t.Fatal("no bound")
		}
	}
	if _, err := a.leafAt(host(t, "late.test"), now.Add(time.Hour*24*30)); err != nil {
		t.Error(err)
	}
}

func TestLeastRecentlyUsedGoes(t *testing.T) {
	a := authority(t)
	now := time.Now()
	name := func(i int) policy.Host {
		return host(t, "h"+string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676))+".test")
	}
	first, _ := a.leafAt(name(0), now)
	second, _ := a.leafAt(name(1), now)
	for i := 2; i <= kept; i++ {
		now = now.Add(time.Second)
		if c, _ := a.leafAt(name(0), now); c != first {
			t.Fatal("the one in use went")
		}
		if _, err := a.leafAt(name(i), now); err != nil {
			t.Fatal(err)
		}
	}
	if c, _ := a.leafAt(name(1), now); c == second || a.leaves.order.Len() != kept || len(a.leaves.byHost) != kept {
		t.Errorf("%d kept", a.leaves.order.Len())
	}
}

func TestKeepAndDestroy(t *testing.T) {
	a := authority(t)
	text, err := a.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Unmarshal(text)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Certificate(), b.Certificate()) {
		t.Error("another certificate")
	}
	l, err := b.Leaf(host(t, "ok.test"))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Leaf.CheckSignatureFrom(a.X509()); err != nil {
		t.Error(err)
	}
	key := b.scalar
	b.Destroy()
	b.Destroy()
	if !bytes.Equal(key, make([]byte, len(key))) {
		t.Error("the key is still there")
	}
	if _, err := b.Leaf(host(t, "ok.test")); err == nil {
		t.Error("it mints still")
	}
	if _, err := b.Marshal(); err == nil {
		t.Error("it gives its key still")
	}
	other, _ := authority(t).Marshal()
	_, otherKey, _ := bytes.Cut(other, []byte("-----BEGIN PRIVATE"))
	mixed := append(slices.Clone(a.Certificate()), append([]byte("-----BEGIN PRIVATE"), otherKey...)...)
	for _, bad := range [][]byte{nil, a.Certificate(), text[:len(text)-40], mixed} {
		if _, err := Unmarshal(bad); err == nil {
			t.Errorf("%d bytes were read", len(bad))
		}
	}
}

func write(t testing.TB, name string, b []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// TestOpenSSL: the strict verifier takes a leaf, and the hash name is OpenSSL's.
func TestOpenSSL(t *testing.T) {
	testneeds.Tool(t, "openssl")
	a := authority(t)
	l, err := a.Leaf(host(t, "ok.test"))
	if err != nil {
		t.Fatal(err)
	}
	root := write(t, "ca.pem", a.Certificate())
	leaf := write(t, "leaf.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.Certificate[0]}))
	if out := run(t, "openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "ok.test", "-CAfile", root, leaf); !strings.Contains(out, "OK") {
		t.Error(out)
	}
	if out, err := exec.Command("openssl", "verify", "-x509_strict", "-verify_hostname", "other.test", "-CAfile", root, leaf).CombinedOutput(); err == nil {
		t.Errorf("another name: %s", out)
	}
	for _, subject := range []pkix.Name{
		a.X509().Subject,
		{CommonName: "  Two   Words\tand ÄÖ  "},
		{Country: []string{"DE"}, Organization: []string{"A.B*C"}, CommonName: "x@y"},
	} {
		template := &x509.Certificate{SerialNumber: serial(), Subject: subject, NotAfter: time.Now().Add(time.Hour)}
		key, _ := a.key()
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		file := write(t, "c.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
		want := strings.TrimSpace(run(t, "openssl", "x509", "-hash", "-noout", "-in", file)) + ".0"
		if got, err := HashName(c); got != want || err != nil {
			t.Errorf("%v: %s %v, openssl says %s", subject, got, err, want)
		}
	}
}

// serve answers TLS with a leaf of a's, for clients that are programs.
func serve(t *testing.T, a *Authority, name string) (port string) {
	cert, err := a.Leaf(host(t, name))
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*cert}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(20 * time.Second))
				if _, err := c.Read(make([]byte, 4096)); err == nil {
					c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfine"))
				}
			}()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

func TestCurl(t *testing.T) {
	testneeds.Tool(t, "curl")
	a := authority(t)
	port := serve(t, a, "ok.test")
	root := write(t, "ca.pem", a.Certificate())
	if out := run(t, "curl", "-sS", "--noproxy", "*", "--cacert", root, "--resolve", "ok.test:"+port+":127.0.0.1", "https://ok.test:"+port+"/"); out != "fine" {
		t.Error(out)
	}
}

// TestPythonStrict: Python since 3.13 verifies strictly by default.
func TestPythonStrict(t *testing.T) {
	testneeds.Tool(t, "python3")
	a := authority(t)
	port := serve(t, a, "ok.test")
	root := write(t, "ca.pem", a.Certificate())
	out := run(t, "python3", "-c", `
import socket, ssl, sys
c = ssl.create_default_context(cafile=sys.argv[1])
c.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
with c.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[2]))), server_hostname="ok.test") as s:
    s.sendall(b"GET / HTTP/1.1\r\n\r\n")
    print(s.version())
`, root, port)
	if !strings.Contains(out, "TLSv1.3") {
		t.Error(out)
	}
}

func TestBundle(t *testing.T) {
	a, b := authority(t), authority(t)
	text := append([]byte("# Zertifikate\n"), a.Certificate()...)
	got := Bundle(text, b.Certificate(), a.Certificate())
	if !bytes.Equal(got, append(slices.Clone(a.Certificate()), b.Certificate()...)) {
		t.Errorf("%s", got)
	}
}

// TestFiles: a root's own places are filled, each with what was there and ours.
func TestFiles(t *testing.T) {
	a, theirs, hosts := authority(t), authority(t), authority(t)
	for name, c := range map[string]struct {
		root map[string]string
		want []string
	}{
		"nothing": {nil, []string{"/opt/b/bundle.pem", "/opt/b/ca.pem", "/opt/b/HASH"}},
		"Debian": {map[string]string{"/etc/ssl/certs/ca-certificates.crt": string(theirs.Certificate()), "/usr/lib/jvm/a/lib/security/cacerts": "old"},
			[]string{"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/HASH", "/usr/local/share/ca-certificates/bailey.crt", "/usr/lib/jvm/a/lib/security/cacerts"}},
		"Fedora": {map[string]string{"/etc/pki/tls/certs/ca-bundle.crt": string(theirs.Certificate()), "/etc/pki/java/cacerts": "old"},
			[]string{"/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/source/anchors/bailey.pem", "/etc/pki/java/cacerts"}},
	} {
		files, err := a.Files(Layout{Dir: "/opt/b", Roots: hosts.Certificate(),
			Read: func(p string) ([]byte, error) {
				if s, ok := c.root[p]; ok {
					return []byte(s), nil
				}
				return nil, fs.ErrNotExist
			},
			Glob: func(pattern string) (out []string) {
				for p := range c.root {
					if ok, _ := path.Match(pattern, p); ok {
						out = append(out, p)
					}
				}
				return out
			}})
		if err != nil {
			t.Fatal(err)
		}
		hash, _ := HashName(a.X509())
		got := map[string][]byte{}
		for _, f := range files {
			if got[f.Path] != nil {
				t.Errorf("%s: %s twice", name, f.Path)
			}
			got[f.Path] = f.Data
		}
		for _, p := range c.want {
			p = strings.Replace(p, "HASH", hash, 1)
			if len(got[p]) == 0 {
				t.Errorf("%s: %s is missing", name, p)
			}
			if strings.Contains(p, "cacerts") {
				certs, err := pkcs12.DecodeTrustStore(got[p], "")
				if err != nil || len(certs) != 2 {
					t.Errorf("%s: %d certificates, %v", name, len(certs), err)
				}
			}
		}
		with := theirs
		if c.root == nil {
			with = hosts
		}
		if want := Bundle(with.Certificate(), a.Certificate()); !bytes.Equal(got["/opt/b/bundle.pem"], want) {
			t.Errorf("%s: the bundle is not what was there and ours", name)
		}
		for _, v := range Env("/opt/b") {
			n, p, _ := strings.Cut(v, "=")
			if n != "SSL_CERT_DIR" && got[p] == nil {
				t.Errorf("%s names nothing", v)
			}
		}
	}
	if _, err := a.Files(Layout{Dir: "relative"}); err == nil {
		t.Error("a relative folder was taken")
	}
}

// TestKeytool: Java reads the store, without a password.
func TestKeytool(t *testing.T) {
	testneeds.Tool(t, "keytool")
	a := authority(t)
	store := JavaStore(Bundle(a.Certificate(), authority(t).Certificate()))
	out := run(t, "keytool", "-J-Xshare:auto", "-list", "-keystore", write(t, "cacerts", store), "-storepass", "")
	if !strings.Contains(out, "2 entries") || strings.Count(out, "trustedCertEntry") != 2 {
		t.Error(out)
	}
}
