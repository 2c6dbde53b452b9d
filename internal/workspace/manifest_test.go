package workspace

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/store/records"
)

func TestManifestComesBackWhole(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, ManifestName)
	m, err := newManifest(name)
	if err != nil {
		t.Fatal(err)
	}
	id := Identity{1, 2, 3, 4, 5, 6, -7, -8, -9, 10, true, [32]byte{11, 31: 12}}
	other := id
	other.Ino++
	want := []Entry{{Path: "."}, {Path: "a\xff/b", Host: id, Copy: other, Target: "x\ny", Xattrs: 1 << 63}}
	for i := range want {
		if err := m.add(&want[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	if got, err := readManifest(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: %+v", err, got)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := os.WriteFile(name, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readManifest(dir); err == nil {
			t.Fatalf("a manifest cut to %d of %d bytes was taken", n, len(whole))
		}
	}
	whole[1] = manifestVersion + 1
	if err := os.WriteFile(name, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readManifest(dir); err == nil {
		t.Error("a manifest of another version was taken")
	}
}

func readManifest(dir string) (list []Entry, err error) {
	m, err := OpenManifest(dir)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	for {
		e, err := m.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
}

// FuzzManifest: whatever the file holds, no entry leads outside of the root.
func FuzzManifest(f *testing.F) {
	var b bytes.Buffer
	m := &manifestWriter{w: records.NewWriter(&b)}
	m.w.Uint(manifestVersion)
	if err := errors.Join(m.w.End(), m.add(&Entry{Path: "a"}), m.add(&Entry{Path: "a/b", Target: "c"}), m.add(&Entry{}), m.w.Flush()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &Manifest{r: records.NewReader(bytes.NewReader(data))}
		for {
			e, err := m.Next()
			if err != nil {
				return
			}
			if !filepath.IsLocal(e.Path) {
				t.Fatalf("%q", e.Path)
			}
		}
	})
}
