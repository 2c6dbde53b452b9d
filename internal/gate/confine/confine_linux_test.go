package confine_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/landlock"
	"github.com/bailey-sandbox/bailey/internal/gate/confine"
)

// TestConfinedFromInside runs a program that confines itself and tries all that
// it must not be able to do any more, and some that it must.
func TestConfinedFromInside(t *testing.T) {
	base := t.TempDir()
	program := filepath.Join(base, "inside")
	// Without cgo, as every program of Bailey is built, also under the race detector.
	build := exec.Command("go", "build", "-o", program, "./testdata/inside")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write, outside, secret := filepath.Join(base, "audit"), filepath.Join(base, "outside"), filepath.Join(base, "secret")
	for _, dir := range []string{write, outside} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(secret, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for p := base; p != "/"; p = filepath.Dir(p) { // whoever it becomes may get here; only the walls stop it
		if fi, err := os.Stat(p); err == nil && fi.Mode()&0o001 == 0 {
			if err := os.Chmod(p, fi.Mode()|0o111); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := exec.Command(program, write, secret, outside)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, &out, &errs)
	}
	var a struct {
		Report confine.Report
		Tried  map[string]string
		UID    int
		Groups []int
	}
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	landlocked := landlock.ABI() >= 2
	byLandlock := []string{"read a secret", "read /etc/passwd", "list /", "read its own memory map", "write outside", "write /tmp", "write /dev/shm", "link out of the folder"}
	for what, err := range a.Tried {
		switch ok := strings.HasPrefix(what, "ok: "); {
		case ok && err != "":
			t.Errorf("%s: %s", what, err)
		case !ok && err == "" && (landlocked || !slices.Contains(byLandlock, what)):
			t.Errorf("it could %s", what)
		}
	}
	if len(a.Tried) < 45 {
		t.Errorf("it tried only %d things", len(a.Tried))
	}
	if os.Geteuid() == 0 && (a.UID != confine.ID || len(a.Groups) > 0) {
		t.Errorf("it is user %d with groups %v", a.UID, a.Groups)
	}
	if landlocked && len(a.Report.Missing) > 0 {
		t.Errorf("missing: %q", a.Report.Missing)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("left outside: %v, %v", left, err)
	}
}
