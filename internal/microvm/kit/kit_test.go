package kit

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

// kitOf writes a kit with other content than its digest says.
func kitOf(t *testing.T, manifest string, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, n := range append([]string{"manifest.json"}, names...) {
		content := n
		if n == "manifest.json" {
			content = manifest
		}
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: n, Mode: 0o644, Size: int64(len(content))})
		w.Write([]byte(content))
	}
	w.Close()
	p := filepath.Join(t.TempDir(), FileName)
	if err := os.WriteFile(p, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDamagedKit(t *testing.T) {
	digest := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	good := `{"version":1,"kernel":"k","monitor":"m","digest":"` + digest + `"}`
	for what, kit := range map[string]string{
		"another digest":  kitOf(t, good, "vmlinux"),
		"a name outside":  kitOf(t, good, "../vmlinux"),
		"another version": kitOf(t, `{"version":2,"digest":"`+digest+`"}`),
		"no manifest":     kitOf(t, "{"),
		"a digest that is a path": kitOf(t,
			`{"version":1,"digest":"../../../../../../../../../../../../../../../../../../../../../x"}`),
		"nothing": filepath.Join(t.TempDir(), "none"),
	} {
		dir := t.TempDir()
		k, err := Open(kit, dir)
		if err == nil || bailey.CodeOf(err) == "" {
			t.Errorf("%s: %v, %v", what, k, err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s: %s is left", what, left)
		}
	}
}
