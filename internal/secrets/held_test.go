package secrets

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
)

func TestHeldFollowsTheStore(t *testing.T) {
	s := open(t)
	must[Info](t)(s.Set("A", Stdin, []byte("first-value-123")))
	h := must[*Held](t)(s.Hold(t.Context(), "A"))
	get := func() *Current {
		t.Helper()
		return must[*Current](t)(h.Get(t.Context(), "A"))
	}
	if c := get(); string(c.Value.Bytes()) != "first-value-123" {
		t.Error("another value")
	}
	before := h.Generation()
	get()
	if h.Generation() != before {
		t.Error("it was unsealed again though nothing changed")
	}
	must[Info](t)(s.Set("A", Stdin, []byte("second-value-456")))
	if c := get(); string(c.Value.Bytes()) != "second-value-456" || len(c.Old) != 1 {
		t.Error("a rotation is not seen")
	}
	if err := s.Revoke("A"); err != nil {
		t.Fatal(err)
	}
	if c := get(); c.Value != nil || len(c.Old) != 2 {
		t.Error("a revocation is not seen")
	}
	if err := s.Remove("A"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Get(t.Context(), "A"); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("after its removal: %v", err)
	}
	if c := h.Peek("A"); c == nil || len(c.Old) != 2 {
		t.Error("the values of a removed one are not known any more")
	}
	if _, err := s.Hold(t.Context(), "B"); bailey.CodeOf(err) != bailey.CodeNotFound || !strings.Contains(err.Error(), "there is no secret B; bailey secret set B") {
		t.Errorf("holding nothing: %v", err)
	}
	h.Wipe()
	if h.Peek("A") != nil {
		t.Error("it is there after Wipe")
	}
}

func TestHeldWithoutFiles(t *testing.T) {
	h := NewHeld()
	if _, err := h.Get(t.Context(), "A"); err == nil {
		t.Error("something came of nothing")
	}
	h.Put(&Current{Name: "A", Version: 1, Value: NewValue([]byte("first-value-123"))})
	h.Put(&Current{Name: "A", Version: 2, Value: NewValue([]byte("second-value-456"))})
	h.Put(&Current{Name: "A", Version: 2, Value: NewValue([]byte("second-value-456"))})
	c := must[*Current](t)(h.Get(t.Context(), "A"))
	if string(c.Value.Bytes()) != "second-value-456" || len(c.Old) != 1 {
		t.Errorf("%d old values", len(c.Old))
	}
	fresh := 0
	h.Refresh = func(context.Context, string) (*Current, error) {
		fresh++
		if fresh > 1 {
			return nil, errors.New("the vault is closed")
		}
		return &Current{Name: "A", Version: 3, Value: NewValue([]byte("third-value-7890")), Expires: time.Now().Add(-time.Second)}, nil
	}
	h.Changed = func(string) bool { return fresh == 0 }
	if c := must[*Current](t)(h.Get(t.Context(), "A")); c.Version != 3 || len(c.Old) != 2 {
		t.Errorf("version %d with %d old", c.Version, len(c.Old))
	}
	if _, err := h.Get(t.Context(), "A"); err == nil {
		t.Error("an expired value was used, though it could not be had again")
	}
}

func TestCommandGivesTheValue(t *testing.T) {
	s := open(t)
	file := filepath.Join(t.TempDir(), "vault")
	if err := os.WriteFile(file, []byte("value-of-the-vault\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	info := must[Info](t)(s.Set("A", Command, []byte("cat '"+file+"'")))
	if info.Prefix != "" || info.Source != Command {
		t.Errorf("described as %+v", info)
	}
	c := current(t, s, "A")
	if string(c.Value.Bytes()) != "value-of-the-vault" || c.Expires.IsZero() {
		t.Error("the command's output is not the value")
	}
	if _, where := seen(t, s.home, "value-of-the-vault"); len(where) > 0 {
		t.Errorf("a command's value is on the disk: %v", where)
	}
	for name, line := range map[string]string{
		"fails, and says the value": "echo value-of-the-vault; echo value-of-the-vault >&2; exit 3",
		"says too little":           "echo short",
		"says nothing":              "true",
		"says two lines":            "printf 'value-of-the-vault\\nvalue-of-the-vault\\n'",
		"says too much":             "yes value-of-the-vault | tr -d '\\n' | head -c 70000",
		"is no program":             "/nonexistent/vault",
	} {
		must[Info](t)(s.Set("A", Command, []byte(line)))
		_, err := s.Current(t.Context(), "A")
		if err == nil || strings.Contains(err.Error(), "value-of") {
			t.Errorf("one that %s: %v", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	must[Info](t)(s.Set("A", Command, []byte("sleep 600 & sleep 600")))
	start := time.Now()
	if _, err := s.Current(ctx, "A"); err == nil || time.Since(start) > 20*time.Second {
		t.Errorf("one that never ends: %v after %v", err, time.Since(start))
	}
	if _, err := s.Set("A", Command, []byte("  ")); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("an empty command: %v", err)
	}
}

func TestMarkStays(t *testing.T) {
	s := open(t)
	a, b := must[string](t)(s.Mark()), must[string](t)(Open(s.home).Mark())
	if a != b || len(a) != 10 {
		t.Errorf("the marks %q and %q", a, b)
	}
	if err := os.WriteFile(filepath.Join(s.home, keyFolder, markName), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Mark(); err == nil {
		t.Error("a damaged mark was used")
	}
}
