package listen_test

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/server/listen"
)

func TestSocketIsTheOwners(t *testing.T) {
	// A path that is longer than a socket's may be.
	home := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time in the place of what the first has left
		l, err := listen.Unix(home)
		if err != nil {
			t.Fatal(err)
		}
		fi, err := os.Lstat(filepath.Join(home, listen.SocketName))
		if err != nil || fi.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%v, mode %v", err, fi.Mode())
		}
		l.Close()
		if _, err := os.Lstat(filepath.Join(home, listen.SocketName)); err != nil {
			t.Errorf("closing took it away: %v", err)
		}
	}
	for range 2 {
		if err := listen.Remove(home); err != nil {
			t.Error(err)
		}
	}
	if names, err := os.ReadDir(home); err != nil || len(names) > 0 {
		t.Errorf("%v is left (%v)", names, err)
	}
}

// own makes a certificate and copies it to files.
func own(t *testing.T, home string) *tls.Config {
	t.Helper()
	c, err := listen.TLS{Own: true, Hosts: []string{"localhost", "127.0.0.1"}}.Config(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAuthorityStays: clients that trust it go on doing so after a restart.
func TestAuthorityStays(t *testing.T) {
	home := t.TempDir()
	own(t, home)
	before, err := os.ReadFile(filepath.Join(home, "tls", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	own(t, home)
	if after, err := os.ReadFile(filepath.Join(home, "tls", "ca.pem")); err != nil || string(after) != string(before) {
		t.Errorf("it is another one (%v)", err)
	}
	if err := os.WriteFile(filepath.Join(home, "tls", "ca.key"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (listen.TLS{Own: true}).Config(t.Context(), home); bailey.CodeOf(err) != bailey.CodeStorage {
		t.Errorf("a damaged one: %v", err)
	}
}

// TestCertificateFiles: renewed files are used without a restart, and a pair that is
// half replaced is not.
func TestCertificateFiles(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	own(t, a)
	own(t, b)
	cert, key := filepath.Join(a, "tls", "ca.pem"), filepath.Join(a, "tls", "ca.key")
	c, err := listen.TLS{Cert: cert, Key: key}.Config(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		x, err := c.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return x.Leaf.SerialNumber.String()
	}
	first := serial()
	replace := func(name string) {
		text, err := os.ReadFile(filepath.Join(b, "tls", filepath.Base(name)))
		if err == nil {
			err = os.WriteFile(name, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	replace(cert)
	if serial() != first {
		t.Error("half a pair is used")
	}
	replace(key)
	for deadline := time.Now().Add(10 * time.Second); serial() == first; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new one is not used")
		}
	}
	if _, err := (listen.TLS{Cert: cert, Key: cert}).Config(context.Background(), a); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("no key: %v", err)
	}
}
