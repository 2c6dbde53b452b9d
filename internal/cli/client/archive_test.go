package client

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinksLeadNowhereElse: whatever a sandbox packs, no link that comes out of it
// leads out of the folder that it was unpacked into, also by way of other links.
func TestLinksLeadNowhereElse(t *testing.T) {
	dir := func(name string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}
	}
	link := func(name, to string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	hard := func(name, to string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
	}
	file := func(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644} }
	for name, c := range map[string]struct {
		entries []*tar.Header
		left    string // out
	}{
		"absolute":             {[]*tar.Header{link("x", "/etc")}, "x"},
		"upwards":              {[]*tar.Header{link("x", "../..")}, "x"},
		"upwards from below":   {[]*tar.Header{dir("p"), dir("p/q"), link("p/q/x", "../../../..")}, "p/q/x"},
		"by another link":      {[]*tar.Header{dir("p"), dir("p/q"), link("p/q/r", "../.."), link("x", "p/q/r/../../..")}, "x"},
		"below another link":   {[]*tar.Header{dir("p"), dir("p/q"), link("p/q/r", "../.."), link("p/q/r/x", "../..")}, "p/q/r/x"},
		"moved by a hard link": {[]*tar.Header{dir("p"), dir("p/q"), link("p/q/r", "../.."), hard("x", "p/q/r")}, "x"},
		"hard, upwards":        {[]*tar.Header{hard("x", "../outside")}, "x"},
		"by its name":          {[]*tar.Header{file("../x")}, "../x"},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			target := filepath.Join(top, "target")
			if err := os.WriteFile(filepath.Join(top, "outside"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range append(c.entries, file("after")) {
				if err := w.WriteHeader(h); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			u := unpacker{}
			if err := u.unpack(target, &b); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(filepath.Join(target, "after")); err != nil {
				t.Error(err)
			}
			err := filepath.WalkDir(target, func(p string, d os.DirEntry, err error) error {
				if err == nil && d.Type()&os.ModeSymlink != 0 {
					if at, err := filepath.EvalSymlinks(p); err != nil || at != target && !strings.HasPrefix(at, target+"/") {
						t.Errorf("%s leads to %s (%v)", p, at, err)
					}
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			if len(u.skipped) != 1 || !strings.HasPrefix(u.skipped[0], c.left+": ") {
				t.Errorf("left out: %q", u.skipped)
			}
		})
	}
}

// TestLinksThatStay: links within the folder come along.
func TestLinksThatStay(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "p/", Mode: 0o755}, {Typeflag: tar.TypeReg, Name: "p/f", Mode: 0o644}, {Typeflag: tar.TypeSymlink, Name: "p/up", Linkname: "../p/f"},
		{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "./p//f"}, {Typeflag: tar.TypeLink, Name: "h", Linkname: "p/f"}, {Typeflag: tar.TypeSymlink, Name: "gone", Linkname: "not/there"},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	u := unpacker{}
	target := t.TempDir()
	if err := u.unpack(target, &b); err != nil || len(u.skipped) > 0 {
		t.Fatal(err, u.skipped)
	}
	for _, p := range []string{"p/up", "l", "h"} {
		if _, err := os.Stat(filepath.Join(target, p)); err != nil {
			t.Error(err)
		}
	}
	if to, err := os.Readlink(filepath.Join(target, "gone")); err != nil || to != "not/there" {
		t.Error(to, err)
	}
}
