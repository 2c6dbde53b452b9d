package lifebench

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// withLevels is a folder of this package's programs with those of gVisor and of virtual machines.
func withLevels(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("BAILEY_TEST_PROGRAMS"); dir != "" {
		return filepath.Join(dir, "levels") // others use it at the same time
	}
	from, err := filepath.Abs(filepath.Join("..", "..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(programs, "levels")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadDir(programs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range own {
		if !e.IsDir() {
			place(t, filepath.Join(programs, e.Name()), filepath.Join(dir, e.Name()))
		}
	}
	for _, name := range []string{"bailey-cell", "bailey-vmm", "runsc", "bailey-microvm.kit"} {
		place(t, filepath.Join(from, name), filepath.Join(dir, name))
	}
	return dir
}

// place makes a copy of a program, since a cell follows no links out of its root.
func place(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal("./scripts/levels and ./scripts/build make it: ", err)
	}
}

// TestKernels measures the levels with a kernel of their own, as short as it can be. All of them are
// there, so all are measured.
func TestKernels(t *testing.T) {
	opt := options(t)
	opt.Kernels, opt.Only, opt.Programs, opt.Limit = true, []string{"cold", "exec"}, withLevels(t), 5*time.Minute
	r, err := Run(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	root := os.Geteuid() == 0
	want := map[string][]string{"cold": {gvisor, microvm, container}, "exec": {gvisor, microvm, container}}
	want["cold"] = append(want["cold"], qemu)
	if root {
		want["cold"], want["exec"] = append(want["cold"], runsc), append(want["exec"], runsc)
	}
	for _, m := range r.Measures {
		var names []string
		for _, s := range m.Subjects {
			names = append(names, s.Name)
			if s.Success != 1 || s.Total.Median <= 0 {
				t.Errorf("%s of %s: %+v", m.Name, s.Name, s)
			}
		}
		slices.Sort(names)
		slices.Sort(want[m.Name])
		if !slices.Equal(names, want[m.Name]) || len(m.Targets) == 0 {
			t.Errorf("%s measures %q, not %q: %+v", m.Name, names, want[m.Name], m.NotMeasured)
		}
		if missing := len(m.NotMeasured) > 0; missing == root {
			t.Errorf("%s lacks %+v", m.Name, m.NotMeasured)
		}
	}
	if len(r.Measures) != 2 {
		t.Errorf("%d measures", len(r.Measures))
	}
}
