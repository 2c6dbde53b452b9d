//go:build linux

package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

func needs(t *testing.T) {
	t.Helper()
	testneeds.Root(t, "mounts a file system")
	testneeds.Tool(t, "mke2fs")
	testneeds.Host(t, testneeds.MountExt4)
}

func TestLimitIsTheKernels(t *testing.T) {
	needs(t)
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := Create(path, 8<<20); err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if m.Full() {
		t.Error("a new disk is full")
	}
	f, err := os.Create(m.Path() + "/big")
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<16)
	for n := 0; ; n += len(block) {
		if _, err = f.Write(block); err != nil {
			break
		}
		if n > 16<<20 {
			t.Fatal("16 MiB fit on a disk of 8")
		}
	}
	f.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if !m.Full() {
		t.Error("a full disk is not full")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}

	// What was written is there the next time, and no loop device is left between.
	if loops := backing(t, path); loops != "" {
		t.Errorf("still attached: %s", loops)
	}
	m, err = Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := os.Stat(m.Path() + "/big"); err != nil {
		t.Error(err)
	}
}

// backing lists loop devices of an image.
func backing(t *testing.T, path string) string {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	var found []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == path {
			found = append(found, f)
		}
	}
	return strings.Join(found, " ")
}

func TestRefusals(t *testing.T) {
	needs(t)
	dir := t.TempDir()
	if err := Create(filepath.Join(dir, "small"), Min-1); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("too small: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "small")); err == nil {
		t.Error("a refused disk was left")
	}
	taken := filepath.Join(dir, "taken")
	os.WriteFile(taken, []byte("x"), 0o600)
	if err := Create(taken, Min); bailey.CodeOf(err) != bailey.CodeStorage {
		t.Errorf("taken: %v", err)
	}
	garbage := filepath.Join(dir, "garbage")
	os.WriteFile(garbage, make([]byte, Min), 0o600)
	if _, err := Open(garbage); bailey.CodeOf(err) != bailey.CodeStorage {
		t.Errorf("garbage: %v", err)
	}
	if loops := backing(t, garbage); loops != "" {
		t.Errorf("still attached: %s", loops)
	}
}
