//go:build linux

package rig

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
)

// Tree describes every file below dirs, one line each: kind, mode, owner, size,
// time of change of the content, links, and what is in it. Two equal Trees are
// the same to whoever reads files.
func Tree(t testing.TB, dirs ...string) string {
	t.Helper()
	var lines []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			fi, err := os.Lstat(p)
			if err != nil {
				return err
			}
			st := fi.Sys().(*syscall.Stat_t)
			line := fmt.Sprintf("%q %v %d:%d links=%d dev=%x mtime=%d", p, fi.Mode(), st.Uid, st.Gid, st.Nlink, st.Rdev, fi.ModTime().UnixNano())
			switch {
			case fi.Mode().IsRegular():
				sum, err := hashFile(p)
				if err != nil {
					return err
				}
				line += fmt.Sprintf(" size=%d %s", fi.Size(), sum)
			case fi.Mode()&fs.ModeSymlink != 0:
				to, err := os.Readlink(p)
				if err != nil {
					return err
				}
				line += fmt.Sprintf(" to=%q", to)
			}
			lines = append(lines, line)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func hashFile(p string) (string, error) {
	f, err := os.Open(p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:12]), nil
}

// Host describes what of the yard is the person's and not Bailey's.
func (y *Yard) Host() string {
	y.t.Helper()
	return Tree(y.t, y.Work, y.Home, y.Temp)
}

// Same fails the test when two Trees differ, and shows where.
func Same(t testing.TB, what, before, after string) {
	t.Helper()
	if before == after {
		return
	}
	had, has := map[string]bool{}, map[string]bool{}
	for l := range strings.SplitSeq(before, "\n") {
		had[l] = true
	}
	for l := range strings.SplitSeq(after, "\n") {
		has[l] = true
	}
	shown := 0
	for l := range had {
		if !has[l] && shown < 10 {
			t.Errorf("%s: was %s", what, l)
			shown++
		}
	}
	for l := range has {
		if !had[l] && shown < 20 {
			t.Errorf("%s: is  %s", what, l)
			shown++
		}
	}
}
