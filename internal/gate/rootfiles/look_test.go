package rootfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLook: bundles and Java's stores of a root, as its highest layer has them; what
// would hold the looker up, or has no end, is none.
func TestLook(t *testing.T) {
	low, high := t.TempDir(), t.TempDir()
	write := func(root, name, text string) {
		t.Helper()
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(low, "etc/ssl/certs/ca-certificates.crt", "old")
	write(high, "etc/ssl/certs/ca-certificates.crt", "new")
	if err := os.Symlink("certs/ca-certificates.crt", filepath.Join(low, "etc/ssl/cert.pem")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(high, "etc/pki/tls/certs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(high, "etc/pki/tls/certs/ca-bundle.crt"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxStores {
		write(high, fmt.Sprintf("usr/lib/jvm/%03d/lib/security/cacerts", i), "store")
	}
	seen := make(chan Seen)
	root := Root{Layers: []string{low, high}}
	go func() { seen <- root.Look() }()
	select {
	case s := <-seen:
		if len(s.Bundles) != 2 || string(s.Bundles[0].Text) != "new" || s.Bundles[1].Path != "/etc/ssl/cert.pem" || string(s.Bundles[1].Text) != "new" {
			t.Errorf("bundles %+v", s.Bundles)
		}
		if len(s.Stores) != maxStores || s.Stores[0] != "/usr/lib/jvm/000/lib/security/cacerts" {
			t.Errorf("%d stores", len(s.Stores))
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits")
	}
	if p := root.Real("/etc/ssl/cert.pem"); p != "/etc/ssl/certs/ca-certificates.crt" {
		t.Errorf("real is %s", p)
	}
	if p := (Root{}).Real("/etc/ssl/cert.pem"); p != "/etc/ssl/cert.pem" {
		t.Errorf("the host's is %s", p)
	}
}
