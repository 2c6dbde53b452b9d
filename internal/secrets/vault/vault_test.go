package vault

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/secrets"
)

const patient = 20 * time.Second

// join connects a vault over a store of its own with a feed.
func join(t *testing.T, home string, lead time.Duration) (*secrets.Store, *Vault, *Feed) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	store := secrets.Open(home)
	f := Follow(r)
	v, err := Open(t.Context(), store, w)
	if err != nil {
		t.Fatal(err)
	}
	v.again = 10 * time.Millisecond
	if lead > 0 {
		v.ahead = lead
	}
	t.Cleanup(func() { v.Close(); w.Close(); r.Close() })
	return store, v, f
}

func set(t *testing.T, s *secrets.Store, name string, from secrets.Source, value string) {
	t.Helper()
	if _, err := s.Set(name, from, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// look says what a request would get, and what is taken out of answers.
func look(f *Feed, name string) string {
	c, err := f.Held().Get(context.Background(), name)
	if err != nil {
		c = f.Held().Peek(name)
		if c == nil {
			return string(bailey.CodeOf(err))
		}
	}
	value := ""
	switch {
	case err != nil:
		value = string(bailey.CodeOf(err))
	case c.Value == nil:
		value = "revoked"
	default:
		value = string(c.Value.Bytes())
	}
	for _, o := range c.Old {
		value += " -" + string(o.Bytes())
	}
	return value
}

// becomes waits until a request would get this.
func becomes(t *testing.T, f *Feed, name, want string) {
	t.Helper()
	for deadline := time.Now().Add(patient); ; {
		f.mu.Lock()
		news := f.news
		f.mu.Unlock()
		got := look(f, name)
		if got == want {
			return
		}
		select {
		case <-news:
		case <-time.After(time.Until(deadline)):
			t.Fatalf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestWhatIsDoneToASecretReachesTheGate: rotation, revocation, removal and
// damage are in force without being asked for, and every value that was ever
// used is still taken out of answers.
func TestWhatIsDoneToASecretReachesTheGate(t *testing.T) {
	home := t.TempDir()
	s, v, f := join(t, home, 0)
	set(t, s, "TOKEN", secrets.Stdin, "first-value-1")
	set(t, s, "OTHER", secrets.Stdin, "other-value-1")
	v.Watch("TOKEN")
	v.Watch("TOKEN") // once is enough
	v.Watch("OTHER")
	if mark, err := f.Wait(t.Context(), []string{"TOKEN", "OTHER"}); err != nil || len(mark) != 10 {
		t.Fatalf("%q, %v", mark, err)
	}
	becomes(t, f, "TOKEN", "first-value-1")
	set(t, s, "TOKEN", secrets.Stdin, "second-value-2")
	becomes(t, f, "TOKEN", "second-value-2 -first-value-1")
	if err := s.Revoke("TOKEN"); err != nil {
		t.Fatal(err)
	}
	becomes(t, f, "TOKEN", "revoked -first-value-1 -second-value-2")
	set(t, s, "TOKEN", secrets.Stdin, "third-value-3")
	becomes(t, f, "TOKEN", "third-value-3 -first-value-1 -second-value-2")
	if err := s.Remove("TOKEN"); err != nil {
		t.Fatal(err)
	}
	becomes(t, f, "TOKEN", "not_found -first-value-1 -second-value-2 -third-value-3")
	set(t, s, "TOKEN", secrets.Stdin, "fourth-value-4")
	becomes(t, f, "TOKEN", "fourth-value-4 -first-value-1 -second-value-2 -third-value-3")
	if err := os.WriteFile(filepath.Join(home, "secrets", "TOKEN.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	becomes(t, f, "TOKEN", "storage -first-value-1 -second-value-2 -third-value-3 -fourth-value-4")
	becomes(t, f, "OTHER", "other-value-1")
	if got := look(f, "UNASKED"); got != "not_found" {
		t.Errorf("one that nobody asked for: %q", got)
	}
}

// TestNothingIsUsedWithoutTheVault: when it ends, however it does, no value is
// put in any more.
func TestNothingIsUsedWithoutTheVault(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, f := secrets.Open(t.TempDir()), Follow(r)
	set(t, s, "TOKEN", secrets.Stdin, "first-value-1")
	v, err := Open(t.Context(), s, w)
	if err != nil {
		t.Fatal(err)
	}
	v.Watch("TOKEN")
	becomes(t, f, "TOKEN", "first-value-1")
	v.Close()
	if got := look(f, "TOKEN"); got != "first-value-1" {
		t.Errorf("before its end is seen: %q", got)
	}
	w.Close()
	becomes(t, f, "TOKEN", "not_available")
	if _, err := f.Wait(t.Context(), []string{"TOKEN"}); bailey.CodeOf(err) != bailey.CodeNotAvailable {
		t.Errorf("waited for: %v", err)
	}
	if c := f.Held().Peek("TOKEN"); c == nil || c.Value == nil {
		t.Error("its value is no longer taken out of answers")
	}
}

// TestVaultEndsWithoutAGate: one to whom nobody listens ends by itself.
func TestVaultEndsWithoutAGate(t *testing.T) {
	s, v, f := join(t, t.TempDir(), 0)
	set(t, s, "TOKEN", secrets.Stdin, "first-value-1")
	v.Watch("TOKEN")
	becomes(t, f, "TOKEN", "first-value-1")
	v.mu.Lock()
	r, w, err := os.Pipe()
	v.out = w
	v.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	set(t, s, "TOKEN", secrets.Stdin, "second-value-2")
	select {
	case <-v.Done():
	case <-time.After(patient):
		t.Error("it goes on")
	}
}

// TestWaitSaysWhatIsMissing: a sandbox does not start without its secrets, and
// the error has the code and the fix of its cause.
func TestWaitSaysWhatIsMissing(t *testing.T) {
	s, v, f := join(t, t.TempDir(), 0)
	set(t, s, "FAILS", secrets.Command, "exit 3")
	set(t, s, "SHORT", secrets.Command, "echo short")
	for name, code := range map[string]bailey.Code{"ABSENT": bailey.CodeNotFound, "FAILS": bailey.CodeSetupFailed, "SHORT": bailey.CodeUsage} {
		v.Watch(name)
		if _, err := f.Wait(t.Context(), []string{name}); bailey.CodeOf(err) != code {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := f.Wait(ctx, []string{"NOT_WATCHED"}); bailey.CodeOf(err) != bailey.CodeSetupFailed {
		t.Errorf("one that never comes: %v", err)
	}
}

// TestCommandsAreAskedAgain: a command's value is renewed before it expires; one
// that fails then is good until it does, and one that takes its time is not used
// when it was set anew.
func TestCommandsAreAskedAgain(t *testing.T) {
	dir := t.TempDir()
	count := filepath.Join(dir, "count")
	// Each value expires at once, as far as asking again goes.
	s, v, f := join(t, t.TempDir(), secrets.CommandTTL)
	set(t, s, "TOKEN", secrets.Command, fmt.Sprintf(`test -e %[1]s.stop && exit 1; echo x >> %[1]s; n=$(wc -l < %[1]s); test $n -gt 3 && n=3 && touch %[1]s.stop; echo value-number-$n`, count))
	v.Watch("TOKEN")
	becomes(t, f, "TOKEN", "value-number-3 -value-number-1 -value-number-2")
	for deadline := time.Now().Add(patient); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(count + ".stop"); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("it is not asked again")
		}
	}
	if got := look(f, "TOKEN"); !strings.HasPrefix(got, "value-number-3 ") {
		t.Errorf("while its command fails: %q", got)
	}
	// Now it hangs, until a file is there.
	set(t, s, "TOKEN", secrets.Command, fmt.Sprintf(`while ! test -e %s.go; do sleep 0.05; done; echo another-value`, count))
	becomes(t, f, "TOKEN", "busy -value-number-1 -value-number-2 -value-number-3")
	if err := os.WriteFile(count+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	becomes(t, f, "TOKEN", "another-value -value-number-1 -value-number-2 -value-number-3")
}

// TestExpiredValues: without a newer one, an expired value is not used.
func TestExpiredValues(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f := Follow(r)
	fmt.Fprintln(w, `{"name":"TOKEN","version":1,"value":"Zmlyc3QtdmFsdWUtMQ==","expires":"2020-01-01T00:00:00Z"}`)
	becomes(t, f, "TOKEN", "not_available")
	fmt.Fprintf(w, `{"name":"TOKEN","version":1,"value":"Zmlyc3QtdmFsdWUtMQ==","expires":%q}`+"\n", time.Now().Add(time.Hour).Format(time.RFC3339))
	becomes(t, f, "TOKEN", "first-value-1")
}
