package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/bailey-sandbox/bailey"
)

// hashed is a file's hash, for as long as the file is the same: it is 80 MB, and asked
// for at each suspend and restore.
type hashed struct {
	mu   sync.Mutex
	file os.FileInfo
	sum  string
}

func (h *hashed) of(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	before, err := f.Stat()
	if err != nil {
		return "", err
	}
	if h.file != nil && unchanged(before, h.file) {
		return h.sum, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	after, err := f.Stat()
	if err == nil && !unchanged(before, after) {
		err = fmt.Errorf("%s changes while it is read", path)
	}
	if err != nil {
		return "", err
	}
	h.file, h.sum = after, hex.EncodeToString(sum.Sum(nil))
	return h.sum, nil
}

func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// version is the hash of runsc.
func (d *Driver) version() (string, error) {
	path, err := d.runsc()
	if err != nil {
		return "", err
	}
	v, err := d.hash.of(path)
	if err != nil {
		return "", bailey.Errorf(bailey.CodeIsolationUnavailable, "tell the version of gVisor", installRunsc, "%w", err)
	}
	return v, nil
}

// same says whether the sandbox runs by the runsc that is installed now. Memory that
// another one writes could not be gone on with.
//
// The cell can put something else in that place; then it is not the same.
func (in *staying) same() (bool, error) {
	path, err := in.d.runsc()
	if err != nil {
		return false, err
	}
	now, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	its, err := os.Lstat(fmt.Sprintf("/proc/%d/root%s", in.Pid(), runscAt))
	return err == nil && os.SameFile(now, its), err
}
