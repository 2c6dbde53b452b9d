package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
)

const sample = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"

// open gives a store of an empty data folder, whatever the environment says.
func open(t *testing.T) *Store {
	t.Helper()
	t.Setenv(EnvKeyFile, "")
	t.Setenv(EnvPassphraseFile, "")
	return Open(filepath.Join(t.TempDir(), "home"))
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func current(t *testing.T, s *Store, name string) *Current {
	t.Helper()
	return must[*Current](t)(s.Current(t.Context(), name))
}

// seen looks for a value, and its base64 in the three alignments, below dir.
func seen(t *testing.T, dir, value string) (files int, where []string) {
	t.Helper()
	needles := []string{value}
	for k := range 3 {
		b := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", k) + value))
		needles = append(needles, b[4:len(b)-4])
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		for _, n := range needles {
			if bytes.Contains(b, []byte(n)) {
				where = append(where, path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, where
}

func TestStoreKeepsValuesSealed(t *testing.T) {
	s := open(t)
	info := must[Info](t)(s.Set("GITHUB_TOKEN", Stdin, []byte(sample)))
	if info.Version != 1 || info.Prefix != "ghp_" || info.Length != "token" || info.Source != Stdin {
		t.Errorf("it is described as %+v", info)
	}
	if err := s.Seal("ca", "lineage1", []byte(sample)); err != nil {
		t.Fatal(err)
	}
	if c := current(t, s, "GITHUB_TOKEN"); string(c.Value.Bytes()) != sample {
		t.Error("the value is not what was kept")
	}
	if got := must[[]byte](t)(s.Unseal("ca", "lineage1")); string(got) != sample {
		t.Error("the blob is not what was kept")
	}
	files, where := seen(t, s.home, sample)
	if files < 3 || len(where) > 0 {
		t.Errorf("of %d files, these hold the value: %v", files, where)
	}
	// The search itself finds what is there.
	if err := os.WriteFile(filepath.Join(s.home, "leak"), []byte(base64.StdEncoding.EncodeToString([]byte("ab"+sample))), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, where := seen(t, s.home, sample); len(where) != 1 {
		t.Errorf("the search found %v", where)
	}
	if fi, err := os.Stat(s.KeyFile()); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the key has %v, %v", fi.Mode(), err)
	}
}

func TestValuesThatAreRefused(t *testing.T) {
	s := open(t)
	for name, value := range map[string]string{
		"short": "12345678901", "line end": "abcdefghijkl\r\nX-Evil: 1", "newline": "abcdefghijkl\nmnop", "return": "abcdefghijklm\rno",
		"nul": "abcdefghijklm\x00", "huge": strings.Repeat("a", MaxValue+1), "empty": "",
	} {
		_, err := s.Set("A", Stdin, []byte(value))
		if bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%s: %v", name, err)
		} else if value != "" && strings.Contains(err.Error(), value[:min(10, len(value))]) {
			t.Errorf("%s: the error says the value", name)
		}
	}
	for _, name := range []string{"", "../x", "a/b", "1A", ".x", strings.Repeat("a", 129), "a b", "a\n"} {
		if _, err := s.Set(name, Stdin, []byte(sample)); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	if _, err := os.Stat(s.home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was refused left something: %v", err)
	}
	must[Info](t)(s.Set("A", Stdin, []byte("abcdefghijkl")))
	must[Info](t)(s.Set("B", Stdin, bytes.Repeat([]byte("a"), MaxValue)))
	if _, err := s.Set("a", Stdin, []byte(sample)); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("a name that differs in case only: %v", err)
	}
}

func TestTrimFinalNewline(t *testing.T) {
	for in, want := range map[string]string{"a\n": "a", "a\r\n": "a", "a": "a", "a\n\n": "a\n", "a\r": "a\r", "\n": "", "": ""} {
		if got := TrimFinalNewline([]byte(in)); string(got) != want {
			t.Errorf("%q gives %q", in, got)
		}
	}
}

func TestRotationKeepsOldValues(t *testing.T) {
	s := open(t)
	one, two := "first-value-123", "second-value-456"
	must[Info](t)(s.Set("A", Stdin, []byte(one)))
	must[Info](t)(s.Set("A", Environment, []byte(two)))
	c := current(t, s, "A")
	if string(c.Value.Bytes()) != two || len(c.Old) != 1 || string(c.Old[0].Bytes()) != one || c.Version != 2 {
		t.Errorf("after a rotation: version %d, %d old", c.Version, len(c.Old))
	}
	if err := s.Revoke("A"); err != nil {
		t.Fatal(err)
	}
	c = current(t, s, "A")
	if c.Value != nil || len(c.Old) != 2 {
		t.Errorf("after a revocation: %d old, a value: %v", len(c.Old), c.Value != nil)
	}
	if all := must[[]Info](t)(s.List()); len(all) != 1 || !all[0].Revoked || all[0].Old != 1 {
		t.Errorf("listed as %+v", all)
	}
	// What was replaced long ago goes with the next change.
	e := must[*entry](t)(s.load("A"))
	e.Versions[0].Replaced = time.Now().Add(-KeepOld - time.Hour)
	if err := s.save(e); err != nil {
		t.Fatal(err)
	}
	if c := current(t, s, "A"); len(c.Old) != 1 {
		t.Errorf("%d values are known after one has expired", len(c.Old))
	}
	must[Info](t)(s.Set("A", Stdin, []byte("third-value-789")))
	if e := must[*entry](t)(s.load("A")); len(e.Versions) != 2 || e.Revoked {
		t.Errorf("%d versions are on the disk", len(e.Versions))
	}
	if err := s.Remove("A"); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.Remove("A"), s.Revoke("A")} {
		if bailey.CodeOf(err) != bailey.CodeNotFound {
			t.Errorf("of one that is gone: %v", err)
		}
	}
}

// TestSealedThingsCannotBeExchanged: who can write files cannot make one secret
// be used as another.
func TestSealedThingsCannotBeExchanged(t *testing.T) {
	s := open(t)
	must[Info](t)(s.Set("A", Stdin, []byte(sample)))
	must[Info](t)(s.Set("B", Stdin, []byte("another-value-here")))
	a := must[*entry](t)(s.load("A"))
	b := must[*entry](t)(s.load("B"))
	b.Versions[0].Sealed = a.Versions[0].Sealed
	if err := s.save(b); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Current(t.Context(), "B"); bailey.CodeOf(err) != bailey.CodeStorage {
		t.Errorf("the value of A at the place of B: %v", err)
	}
	for _, damage := range []string{"", "{", `{"format":1,"name":"B","versions":[]}`, `{"format":2}`} {
		if err := os.WriteFile(s.path("B"), []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Current(t.Context(), "B"); bailey.CodeOf(err) != bailey.CodeStorage {
			t.Errorf("a file that holds %q: %v", damage, err)
		}
	}
}

func TestBackup(t *testing.T) {
	s := open(t)
	must[Info](t)(s.Set("A", Stdin, []byte(sample)))
	if err := s.Seal("ca", "x", []byte("key")); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(s.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	restored := Open(t.TempDir())
	if err := os.CopyFS(restored.dir(), os.DirFS(s.dir())); err != nil {
		t.Fatal(err)
	}
	_, err = restored.Current(t.Context(), "A")
	if bailey.CodeOf(err) != bailey.CodeStorage || !strings.Contains(err.Error(), "backup") {
		t.Errorf("without the key: %v", err)
	}
	if _, err := os.Stat(restored.KeyFile()); err == nil {
		t.Error("reading made a key, which could hide that the old one is lost")
	}
	if err := os.MkdirAll(filepath.Dir(restored.KeyFile()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(restored.KeyFile(), key, 0o600); err != nil {
		t.Fatal(err)
	}
	if c := current(t, restored, "A"); string(c.Value.Bytes()) != sample {
		t.Error("the restored value differs")
	}
	if got := must[[]byte](t)(restored.Unseal("ca", "x")); string(got) != "key" {
		t.Error("the restored blob differs")
	}
}

func TestKeyElsewhereAndPassphrase(t *testing.T) {
	s := open(t)
	must[Info](t)(s.Set("A", Stdin, []byte(sample)))
	if w := s.KeyWarning(); w != "" {
		t.Errorf("a warning without a reason: %s", w)
	}
	elsewhere := filepath.Join(t.TempDir(), "key")
	if err := os.Rename(s.KeyFile(), elsewhere); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvKeyFile, elsewhere)
	other := Open(s.home)
	if c := current(t, other, "A"); string(c.Value.Bytes()) != sample {
		t.Error("the key that is named by the environment gives another value")
	}
	if err := os.Chmod(elsewhere, 0o644); err != nil {
		t.Fatal(err)
	}
	if w := other.KeyWarning(); !strings.Contains(w, elsewhere) {
		t.Errorf("a key that all can read: %q", w)
	}

	t.Setenv(EnvKeyFile, "")
	pass := filepath.Join(t.TempDir(), "pass")
	if err := os.WriteFile(pass, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvPassphraseFile, pass)
	sealed := Open(t.TempDir())
	sealed.work = 10
	must[Info](t)(sealed.Set("A", Stdin, []byte(sample)))
	if b, err := os.ReadFile(sealed.KeyFile()); err != nil || bytes.Contains(b, []byte("AGE-SECRET-KEY")) {
		t.Errorf("the key is not sealed (%v)", err)
	}
	if c := current(t, Open(sealed.home), "A"); string(c.Value.Bytes()) != sample {
		t.Error("the passphrase gives another value")
	}
	t.Setenv(EnvPassphraseFile, "")
	if _, err := Open(sealed.home).Current(t.Context(), "A"); bailey.CodeOf(err) != bailey.CodeStorage || !strings.Contains(err.Error(), EnvPassphraseFile) {
		t.Errorf("without the passphrase: %v", err)
	}
}

func TestSealedBlobs(t *testing.T) {
	s := open(t)
	if _, err := s.Unseal("ca", "x"); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("of nothing: %v", err)
	}
	for _, n := range []string{"one", "two"} {
		if err := s.Seal("ca", n, []byte(n)); err != nil {
			t.Fatal(err)
		}
	}
	if all := must[[]string](t)(s.Sealed("ca")); strings.Join(all, " ") != "one two" {
		t.Errorf("listed: %v", all)
	}
	for range 2 {
		if err := s.Destroy("ca", "one"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Unseal("ca", "one"); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("of a destroyed one: %v", err)
	}
	if err := s.Seal("../x", "one", nil); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("a kind that leaves the folder: %v", err)
	}
	if all := must[[]Info](t)(s.List()); len(all) != 0 {
		t.Errorf("blobs are listed as secrets: %v", all)
	}
}

// TestWritersAtOnce: each writer's value gets a version of its own, and all use
// one key.
func TestWritersAtOnce(t *testing.T) {
	s := open(t)
	const writers = 8
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			// A store of its own, as another process has.
			if _, err := Open(s.home).Set("A", Stdin, fmt.Appendf(nil, "value-number-%02d", i)); err != nil {
				t.Error(err)
			}
			if _, err := Open(s.home).Mark(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	c := current(t, s, "A")
	known := map[string]bool{string(c.Value.Bytes()): true}
	for _, o := range c.Old {
		known[string(o.Bytes())] = true
	}
	if len(known) != writers || c.Version != writers {
		t.Errorf("%d values and version %d after %d writers", len(known), c.Version, writers)
	}
	if left, _ := filepath.Glob(filepath.Join(s.home, "*", ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestValueNeverPrints(t *testing.T) {
	v := NewValue([]byte(sample))
	c := Current{Name: "A", Value: v, Old: []*Value{v}}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "v", v, "c", c)
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v, "c", c)
	for _, f := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&b, f, v)
		fmt.Fprintf(&b, f, c)
	}
	if err := json.NewEncoder(&b).Encode(c); err != nil {
		t.Fatal(err)
	}
	hexed := fmt.Sprintf("%x", sample)
	if s := b.String(); strings.Contains(s, sample) || strings.Contains(s, hexed) || strings.Contains(s, "103 104 112") {
		t.Errorf("it was printed: %s", s)
	}
	if !strings.Contains(b.String(), hidden) {
		t.Error("nothing was printed")
	}
	v.Wipe()
	if len(v.Bytes()) != 0 {
		t.Error("it is there after Wipe")
	}
}
