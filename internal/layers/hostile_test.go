package layers

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

func dirHeader(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

func archive(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Format = tar.FormatPAX
		h.Uid, h.Gid = os.Geteuid(), os.Getegid()
		must(t, w.WriteHeader(h))
		if h.Size > 0 {
			w.Write(make([]byte, h.Size))
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

func TestHostileArchives(t *testing.T) {
	root := dirHeader("./")
	for name, b := range map[string][]byte{
		"nothing":           archive(t),
		"no root":           archive(t, dirHeader("a/")),
		"two roots":         archive(t, root, dirHeader("./")),
		"climbs":            archive(t, root, &tar.Header{Typeflag: tar.TypeReg, Name: "../x"}),
		"climbs below":      archive(t, root, dirHeader("a/"), &tar.Header{Typeflag: tar.TypeReg, Name: "a/../../x"}),
		"absolute":          archive(t, root, &tar.Header{Typeflag: tar.TypeReg, Name: "/x"}),
		"without folder":    archive(t, root, &tar.Header{Typeflag: tar.TypeReg, Name: "a/x"}),
		"through a link":    archive(t, root, &tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/"}, &tar.Header{Typeflag: tar.TypeReg, Name: "a/x"}),
		"folder on a link":  archive(t, root, &tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/"}, dirHeader("a/")),
		"twice":             archive(t, root, &tar.Header{Typeflag: tar.TypeReg, Name: "a"}, &tar.Header{Typeflag: tar.TypeReg, Name: "a"}),
		"file as folder":    archive(t, root, &tar.Header{Typeflag: tar.TypeReg, Name: "a"}, &tar.Header{Typeflag: tar.TypeReg, Name: "a/b"}),
		"link outside":      archive(t, root, &tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "../../etc/passwd"}),
		"link to nothing":   archive(t, root, &tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "b"}),
		"link to a folder":  archive(t, root, dirHeader("b/"), &tar.Header{Typeflag: tar.TypeLink, Name: "c", Linkname: "b"}),
		"link to the root":  archive(t, root, &tar.Header{Typeflag: tar.TypeLink, Name: "c", Linkname: "."}),
		"link over a link":  archive(t, root, &tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc"}, &tar.Header{Typeflag: tar.TypeLink, Name: "c", Linkname: "a/passwd"}),
		"device":            archive(t, root, &tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}),
		"block device":      archive(t, root, &tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Devmajor: 8}),
		"redirect":          archive(t, root, &tar.Header{Typeflag: tar.TypeDir, Name: "a/", PAXRecords: map[string]string{paxXattr + "trusted.other": "/etc"}}),
		"label":             archive(t, root, &tar.Header{Typeflag: tar.TypeDir, Name: "a/", PAXRecords: map[string]string{paxXattr + "security.selinux": "x"}}),
		"unknown record":    archive(t, root, &tar.Header{Typeflag: tar.TypeDir, Name: "a/", PAXRecords: map[string]string{"ACME.x": "x"}}),
		"root deleted":      archive(t, root, &tar.Header{Typeflag: tar.TypeReg, Name: opaqueName}),
		"deletes nothing":   archive(t, root, &tar.Header{Typeflag: tar.TypeReg, Name: ".wh."}),
		"deletes above":     archive(t, root, &tar.Header{Typeflag: tar.TypeReg, Name: ".wh..."}),
		"deletion as link":  archive(t, root, &tar.Header{Typeflag: tar.TypeSymlink, Name: ".wh.a", Linkname: "b"}),
		"full deletion":     archive(t, root, &tar.Header{Typeflag: tar.TypeReg, Name: ".wh.a", Size: 5}),
		"long name":         archive(t, root, &tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("a", 256)}),
		"no target":         archive(t, root, &tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: ""}),
		"cut":               archive(t, root, &tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 4096})[:2500],
		"no archive at all": []byte(strings.Repeat("what is this", 100)),
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			s := open(t, dir)
			_, err := s.ReadTar(ctx, "x", "", bytes.NewReader(b), IDs{})
			if err == nil {
				t.Fatal("accepted")
			}
			if code := bailey.CodeOf(err); code != bailey.CodeImageInvalid && code != bailey.CodeStorage {
				t.Errorf("got %v", err)
			}
			entries, err := os.ReadDir(s.dir)
			must(t, err)
			if len(entries) > 0 {
				t.Errorf("left: %v", entries)
			}
		})
	}
}

// FuzzReadTar: whatever is read stays inside, and what is accepted can be hashed,
// written and read again with the same hash.
func FuzzReadTar(f *testing.F) {
	dir := tempDir(f)
	s := open(f, dir)
	if _, err := s.Capture(ctx, "seed", "", sample(f, dir), IDs{}); err == nil {
		var b bytes.Buffer
		must(f, s.WriteTar(ctx, "seed", &b))
		if b.Len() < 1<<20 {
			f.Add(b.Bytes())
		}
	}
	f.Add(archive(f, dirHeader("./"), dirHeader("a/"), &tar.Header{Typeflag: tar.TypeReg, Name: "a/f", Size: 10},
		&tar.Header{Typeflag: tar.TypeReg, Name: "a/.wh..wh..opq"}, &tar.Header{Typeflag: tar.TypeReg, Name: ".wh.gone"},
		&tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "a/f"}, &tar.Header{Typeflag: tar.TypeSymlink, Name: "s", Linkname: "/etc"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := tempDir(t)
		s := open(t, dir)
		if _, err := s.ReadTar(ctx, "x", "", bytes.NewReader(b), IDs{}); err != nil {
			return
		}
		entries, err := os.ReadDir(dir)
		must(t, err)
		if len(entries) != 1 {
			t.Fatalf("%v", entries)
		}
		h, err := canonicalHash(s, "x")
		if err != nil {
			return // a hole of a terabyte
		}
		var again bytes.Buffer
		must(t, s.WriteTar(ctx, "x", &again))
		if _, err := s.ReadTar(ctx, "y", "", &again, IDs{}); err != nil {
			t.Fatal(err)
		}
		if again, err := canonicalHash(s, "y"); again != h {
			t.Fatal("another hash", err)
		}
	})
}

// canonicalHash is Hash without what makes it last, which takes longer.
func canonicalHash(s *Store, id string) (string, error) {
	l, err := s.Get(id)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	err = s.canonical(ctx, l, newCanon(h, l.IDs))
	return hex.EncodeToString(h.Sum(nil)), err
}

func FuzzMeta(f *testing.F) {
	f.Add([]byte(`{"version":1,"id":"a","parent":"b","method":"sealed","created":"2026-01-02T03:04:05Z","hash":"sha256:` + strings.Repeat("a", 64) + `"}`))
	f.Add([]byte(`{"version":1,"id":"../x","method":"sealed"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMeta(b)
		if err == nil && (!validID(m.ID) || filepath.Base(m.ID) != m.ID) {
			t.Fatalf("accepted %q", m.ID)
		}
	})
}

func FuzzManifest(f *testing.F) {
	var b bytes.Buffer
	w := newManifest(&b)
	w.add(line{path: ".", kind: isDir, mode: 0o40755})
	w.add(line{path: "a", kind: isFile, size: 5})
	w.end()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := openManifest(bytes.NewReader(b))
		for err == nil {
			_, err = m.next()
		}
		if err == io.EOF && len(b) == 0 {
			t.Fatal("nothing is a whole manifest")
		}
	})
}
