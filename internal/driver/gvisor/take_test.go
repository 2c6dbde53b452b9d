package gvisor

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/driver"
)

// What a broken cell leaves in place of memory is refused before it costs anything.
func TestTakeFromAHostileCell(t *testing.T) {
	const most = 1 << 20
	for _, tc := range []struct {
		name   string
		change func(memory string) error // "checkpoint.img" is not there
		why    string                    // "" is accepted
	}{
		{"as it should be", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "checkpoint.img"), []byte("state"), 0)
		}, ""},
		{"huge", func(dir string) error { return sparse(filepath.Join(dir, "checkpoint.img"), most+1) }, "more than the sandbox's memory"},
		{"huge together", func(dir string) error {
			if err := sparse(filepath.Join(dir, "checkpoint.img"), most); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "pages.img"), []byte("x"), 0o600)
		}, "more than the sandbox's memory"},
		{"pipe", func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "checkpoint.img"), 0o600) }, "no regular file"},
		{"folder", func(dir string) error { return os.Mkdir(filepath.Join(dir, "checkpoint.img"), 0o700) }, "no regular file"},
		{"link", func(dir string) error {
			return os.Symlink(filepath.Join(dir, "../../other/checkpoint.img"), filepath.Join(dir, "checkpoint.img"))
		}, "checkpoint.img"},
		{"link as folder", func(dir string) error {
			if err := os.Rename(dir, dir+".old"); err != nil {
				return err
			}
			return os.Symlink("../other", dir)
		}, "escapes"},
		{"nothing", func(string) error { return nil }, "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := t.TempDir()
			cell, to := filepath.Join(top, "cell"), filepath.Join(top, "to")
			// Another sandbox's memory lies beside it.
			for _, dir := range []string{cell, to, filepath.Join(cell, "memory"), filepath.Join(top, "other")} {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range memoryFiles {
				if err := os.WriteFile(filepath.Join(top, "other", name), []byte("another's"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range memoryFiles[1:] {
				if err := os.WriteFile(filepath.Join(cell, "memory", name), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := tc.change(filepath.Join(cell, "memory")); err != nil {
				t.Fatal(err)
			}
			// A file that nobody may read is the owner's all the same.
			os.Chmod(filepath.Join(cell, "memory/checkpoint.img"), 0o600)
			err := take(t.Context(), cell, to, most)
			switch {
			case tc.why != "":
				if err == nil || !strings.Contains(err.Error(), tc.why) {
					t.Error(err)
				}
			case err != nil:
				t.Error(err)
			default:
				b, err := os.ReadFile(filepath.Join(to, "checkpoint.img"))
				if err != nil || string(b) != "state" {
					t.Errorf("%q, %v", b, err)
				}
			}
		})
	}
}

func sparse(path string, size int64) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, size)
}

// Whoever gives up is not kept waiting for the rest of a copy.
func TestTakeIsStopped(t *testing.T) {
	cell, to := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(cell, "memory"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := sparse(filepath.Join(cell, "memory/checkpoint.img"), 1<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := take(ctx, cell, to, math.MaxInt64); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestBound(t *testing.T) {
	const mega = 1 << 20
	for _, tc := range []struct {
		limit int64
		host  float64
		swap  float64
		want  int64
	}{
		{limit: 100 * mega, host: 1000 * mega, want: 2*100*mega + besides},
		{limit: 100 * mega, host: 1000 * mega, swap: 50 * mega, want: 2*150*mega + besides},
		{limit: 5000 * mega, host: 1000 * mega, want: 2*1000*mega + besides},
		{limit: 0, host: 1000 * mega, want: 2*1000*mega + besides},
		{limit: 0, host: math.MaxUint64, want: math.MaxInt64/2 + 1},
	} {
		if n := boundOn(driver.Stats{MemoryLimit: tc.limit}, tc.host, tc.swap); n != tc.want {
			t.Errorf("%+v: %d", tc, n)
		}
	}
}

func TestRoomy(t *testing.T) {
	if err := roomy(t.TempDir(), 1<<62); err == nil {
		t.Error("a disk has room for 4 EiB")
	}
	if err := roomy(t.TempDir(), -1); err != nil {
		t.Error(err)
	}
}

// A hash is taken once of a file that stays, and again of one that does not.
func TestHashedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runsc")
	at := time.Unix(1e9, 0)
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	var h hashed
	of := func() string {
		t.Helper()
		sum, err := h.of(path)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	write("one", at)
	one := of()
	write("two", at)
	if of() != one {
		t.Error("it was read again")
	}
	write("two", at.Add(1))
	two := of()
	if two == one {
		t.Error("the hash of another content is the same")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := h.of(path); err == nil {
		t.Error("it has the hash of nothing")
	}
	other := filepath.Join(filepath.Dir(path), "other")
	if err := os.WriteFile(other, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if of() != one {
		t.Error("a file in its place was not read")
	}
}
