package linux

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

func TestSkeletonOf(t *testing.T) {
	dirs, files := skeletonOf(driver.Root{Places: []driver.Place{
		{Kind: driver.Bind, Target: "/home/me/project", IsDir: true},
		{Kind: driver.Bind, Target: "/opt/tool"},
		{Kind: driver.Bind, Target: "/opt/tool"},
		{Kind: driver.File, Target: "/etc/hosts"},
		{Kind: driver.CoW, Target: "/usr"},
		{Kind: driver.Bind, Target: "/x"},
		{Kind: driver.Bind, Target: "/x/below"},
		{Kind: driver.Bind, Target: "/y/file"},
		{Kind: driver.Dir, Target: "/y/file"},
		{Kind: driver.Mask, Target: "/masked"},
	}})
	for _, want := range []string{"/dev", "/proc", "/home", "/home/me", "/home/me/project", "/opt", "/etc", "/usr", "/y", "/y/file"} {
		if !slices.Contains(dirs, want) {
			t.Errorf("%s is not there: %v", want, dirs)
		}
	}
	for i, d := range dirs {
		if at := slices.Index(dirs, filepath.Dir(d)); at < 0 && filepath.Dir(d) != "/" || at > i {
			t.Errorf("%s comes before what is above it", d)
		}
		if slices.Contains(files, d) || d == "/masked" {
			t.Errorf("%s", d)
		}
	}
	if !slices.Equal(files, []string{"/opt/tool", "/x/below"}) {
		t.Errorf("%v", files)
	}
}

// What something is mounted on is no change of the sandbox's own layer, and what an
// image has of it is as the image has it.
func TestNothingIsMadeInTheLayer(t *testing.T) {
	y := newYard(t, bailey.IsolationContainer)
	mine := filepath.Join(y.Dir, "lower", "work")
	if err := os.Mkdir(mine, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(y.Dir, "lower", "sys"), 0o500); err != nil {
		t.Fatal(err)
	}
	_, c := stays(t, y)
	if out, status := sh(t, c, "stat -c %a /sys; echo x > /made; ls -d /proc /dev /place"); status != 0 || out != "500\n/dev\n/place\n/proc\n" {
		t.Errorf("%d %q", status, out)
	}
	var have []string
	list, err := os.ReadDir(filepath.Join(y.Dir, "layer", "upper"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		have = append(have, e.Name())
	}
	for _, name := range have {
		if name != "made" && name != "usr" && name != "bin" && name != "lib" && name != "lib64" { // links of a merged /usr
			t.Errorf("the layer has %v", have)
			break
		}
	}
}
