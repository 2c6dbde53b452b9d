package image

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/bailey-sandbox/bailey"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestExportAndImport carries an image to another store and back: it has the same
// digest, and each export the same bytes.
func TestExportAndImport(t *testing.T) {
	reg := serve(t)
	base := t.TempDir()
	one := openStore(t, filepath.Join(base, "one"))
	img := configured(t, imageOf(t, tarOf(t, entry{"a", noise(50_000)}), tarOf(t, entry{"b", "2"})), thisMachine(), v1.Config{Env: []string{"A=b"}})
	reg.push(t, "x:1", img)
	p := mustPull(t, one, reg.config(), reg.host+"/x:1")
	var first bytes.Buffer
	if err := one.Export(context.Background(), p.Name.Image, "x", &first); err != nil {
		t.Fatal(err)
	}
	two := openStore(t, filepath.Join(base, "two"))
	q, err := two.Import(context.Background(), bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if q.Name.Image != p.Name.Image || q.Name.Image != digestOf(t, img) || !reflect.DeepEqual(q.Root.Config, p.Root.Config) || !reflect.DeepEqual(q.Root.Layers, layerDirs(t, two, img)) {
		t.Errorf("%+v for %+v", q, p)
	}
	var second bytes.Buffer
	if err := two.Export(context.Background(), q.Name.Image, "x", &second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("the second export differs: %d bytes for %d, %v", second.Len(), first.Len(), err)
	}
	// It is what other programs read, too.
	s := openStore(t, filepath.Join(base, "three"))
	if r := prepare(t, s, writeFile(t, filepath.Join(base, "x.tar"), first.Bytes())); r.Digest != p.Name.Image {
		t.Errorf("prepared %+v", r)
	}
	if err := one.Export(context.Background(), "sha256:"+hexSum([]byte("no")), "", &second); err == nil {
		t.Error("exported what is not there")
	}
	wantClean(t, two.dir)
}

// TestImportsThatAreDamaged changes a byte at many places of an export.
func TestImportsThatAreDamaged(t *testing.T) {
	base := t.TempDir()
	reg := serve(t)
	one := openStore(t, filepath.Join(base, "one"))
	reg.push(t, "x:1", imageOf(t, tarOf(t, entry{"a", "1"})))
	p := mustPull(t, one, reg.config(), reg.host+"/x:1")
	var b bytes.Buffer
	if err := one.Export(context.Background(), p.Name.Image, "x", &b); err != nil {
		t.Fatal(err)
	}
	two := openStore(t, filepath.Join(base, "two"))
	refused := 0
	for i := 0; i < b.Len(); i += 37 {
		damaged := bytes.Clone(b.Bytes())
		damaged[i] ^= 0x55
		q, err := two.Import(context.Background(), bytes.NewReader(damaged))
		if err == nil {
			if q.Name.Image != p.Name.Image { // the padding of a tar is nobody's
				t.Errorf("byte %d: another image came of it: %+v", i, q)
			}
			continue
		}
		refused++
		if c := bailey.CodeOf(err); c != bailey.CodeImageInvalid && c != bailey.CodeNotFound {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	if refused < 20 {
		t.Errorf("only %d were refused", refused)
	}
	if left, _ := os.ReadDir(filepath.Join(two.dir, "blobs/partial")); len(left) > 40 {
		t.Errorf("%d partial blobs are left", len(left))
	}
	wantClean(t, two.dir)
}
