package main

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRootsThatAreNone: a name in SSL_CERT_FILE that has no end, or at which
// nobody writes, does not hold the gate up.
func TestRootsThatAreNone(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, "/dev/zero"} {
		t.Setenv("SSL_CERT_FILE", name)
		ended := make(chan error, 1)
		go func() {
			_, err := systemRoots()
			ended <- err
		}()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: it waits", name)
		}
	}
}
