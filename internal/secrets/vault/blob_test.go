package vault

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// TestBlobs: what was sealed comes to whoever waits for it, each time it is given
// once, with the reason where there is none; nobody's is kept without bound.
func TestBlobs(t *testing.T) {
	_, v, f := join(t, t.TempDir(), 0)
	got := make(chan string, 3)
	for range 2 {
		go func() {
			b, err := f.Blob(t.Context(), "authority", "one")
			got <- fmt.Sprint(string(b), err)
		}()
	}
	v.Give("authority", "other", []byte("other"), nil)
	for range 2 {
		v.Give("authority", "one", []byte("key"), nil)
		if s := <-got; s != "key<nil>" {
			t.Errorf("taken: %s", s)
		}
	}
	v.Give("authority", "lost", nil, bailey.Errorf(bailey.CodeStorage, "unseal", "", "damaged"))
	if _, err := f.Blob(t.Context(), "authority", "lost"); bailey.CodeOf(err) != bailey.CodeStorage {
		t.Errorf("one that cannot be unsealed: %v", err)
	}
	if b, err := f.Blob(t.Context(), "authority", "other"); err != nil || string(b) != "other" {
		t.Errorf("%s, %v", b, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := f.Blob(ctx, "authority", "one"); bailey.CodeOf(err) != bailey.CodeSetupFailed {
		t.Errorf("one that is not given: %v", err)
	}
	for i := range 2 * maxUntaken {
		f.keep(message{Sealed: "k", Name: "n", Value: []byte{byte(i)}})
	}
	for i := range maxNames + 10 {
		f.keep(message{Sealed: "k", Name: fmt.Sprint(i), Value: []byte("x")})
	}
	f.mu.Lock()
	names, untaken := len(f.blobs), len(f.blobs["k n"])
	f.mu.Unlock()
	if names > maxNames || untaken > maxUntaken {
		t.Errorf("%d names, %d of one", names, untaken)
	}
	v.Close()
	if err := v.out.(interface{ Close() error }).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Blob(t.Context(), "authority", "one"); !errors.Is(err, errLost) {
		t.Errorf("without a vault: %v", err)
	}
}

// TestChangesAreTold: the kernel tells of a changed secret, so that nobody looks at
// it all the time.
func TestChangesAreTold(t *testing.T) {
	s, v, f := join(t, t.TempDir(), 0)
	set(t, s, "TOKEN", "stdin", "first-value-1")
	v.Watch("TOKEN")
	becomes(t, f, "TOKEN", "first-value-1")
	v.mu.Lock()
	told := v.told
	v.mu.Unlock()
	if news, wait := v.look(); !told || news == nil || wait != slowBeat {
		t.Errorf("it is looked at every %s", wait)
	}
	set(t, s, "TOKEN", "stdin", "second-value-2")
	becomes(t, f, "TOKEN", "second-value-2 -first-value-1")
}
