package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/secrets"
	"github.com/bailey-sandbox/bailey/internal/secrets/vault"
)

// TestLineageKeepsItsAuthority: another gate's process gives the same lineage
// the same authority, so that who trusts it goes on; its key lies sealed only,
// and is gone when the lineage is destroyed. A sandbox that is a lineage alone
// leaves nothing.
func TestLineageKeepsItsAuthority(t *testing.T) {
	home := t.TempDir()
	g := &gateway{lineages: map[string]*lineage{}}
	store := secrets.Open(home)
	certificate := func(name string) []byte {
		t.Helper()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		g.feed = vault.Follow(r)
		if name != "" {
			v, err := vault.Open(t.Context(), store, w)
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			text, err := sealedAuthority(store, name)
			v.Give(lineageKind, name, text, err)
		}
		a, leave, err := g.authorityOf(t.Context(), name, "s")
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		return a.Certificate()
	}
	if bytes.Equal(certificate(""), certificate("")) {
		t.Error("two sandboxes without a lineage have one authority")
	}
	if list, err := os.ReadDir(home); err != nil || len(list) > 0 {
		t.Errorf("a sandbox alone leaves %v, %v", list, err)
	}
	first := certificate("one")
	if !bytes.Equal(certificate("one"), first) || bytes.Equal(certificate("two"), first) {
		t.Error("a lineage has not one authority of its own")
	}
	key, err := store.Unseal(lineageKind, "l-one")
	if err != nil {
		t.Fatal(err)
	}
	filepath.WalkDir(home, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if text, _ := os.ReadFile(p); bytes.Contains(text, key) || bytes.Contains(text, []byte("PRIVATE KEY")) {
				t.Errorf("%s has the key in the clear", p)
			}
			if fi, _ := d.Info(); fi.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s can be read by others", p)
			}
		}
		return err
	})
	if err := store.Destroy(lineageKind, "l-one"); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(certificate("one"), first) {
		t.Error("a destroyed authority came back")
	}
	if len(g.lineages) > 0 {
		t.Errorf("authorities that nobody has: %v", g.lineages)
	}
}
