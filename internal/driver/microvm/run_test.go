package microvm_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

// What it writes, and nothing else, lies in its layer. Without an outlet there is no card.
func TestRun(t *testing.T) {
	r := newRig(t)
	// What a crash has left is in nobody's way.
	if err := os.MkdirAll(filepath.Join(r.state, "own", "left"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, end := r.run(r.spec("sh", "-c", "uname -r; hostname; id -u; echo $HOME; ls /sys/class/net; echo x >/root/new; echo y >/tmp/kept; rm /bin/yes; exit 7"))
	if !strings.HasPrefix(out, "6.") || !strings.HasSuffix(out, "-cloud-amd64\ninside\n0\n/root\nlo\n") {
		t.Errorf("%q", out)
	}
	if end.Reason != bailey.EndExit || end.ExitCode != 7 {
		t.Errorf("%+v", end)
	}
	var made []string
	err := filepath.WalkDir(filepath.Join(r.layer, "upper"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			made = append(made, strings.TrimPrefix(p, filepath.Join(r.layer, "upper")))
		}
		return err
	})
	if err != nil || !slices.Equal(made, []string{"/bin/yes", "/root/new", "/tmp/kept"}) {
		t.Errorf("%v %v", made, err)
	}
	if _, err := os.Lstat(filepath.Join(r.state, "own")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its folder is left: %v", err)
	}
}
