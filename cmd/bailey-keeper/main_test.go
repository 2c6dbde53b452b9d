package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		args    []string
		home    string
		command []string // none: an error
	}{
		{[]string{"--home", "/x", "--", "baileyd", "serve", "--"}, "/x", []string{"baileyd", "serve", "--"}},
		{[]string{"--home=/x", "--", "baileyd"}, "/x", []string{"baileyd"}},
		{[]string{"--home", "x", "--", "baileyd"}, "", nil},
		{[]string{"--home"}, "", nil},
		{[]string{"--home", "/x", "--"}, "", nil},
		{[]string{"--home", "/x"}, "", nil},
		{[]string{"--home", "/x", "baileyd"}, "", nil},
		{[]string{"--", "baileyd"}, "", nil},
		{[]string{"--new", "--home", "/x", "--", "baileyd"}, "", nil},
		{nil, "", nil},
	} {
		home, command, err := parse(tc.args)
		if home != tc.home || !slices.Equal(command, tc.command) || (err != nil) != (tc.command == nil) {
			t.Errorf("%q: %q %q %v", tc.args, home, command, err)
		}
	}
}

// Who starts a second keeper is told apart from who cannot start one.
func TestHomeThatHasAKeeper(t *testing.T) {
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "keeper"), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(home, "keeper", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if status := run([]string{"--home", home, "--", "/bin/true"}); status != exitBusy {
		t.Errorf("status %d", status)
	}
}
