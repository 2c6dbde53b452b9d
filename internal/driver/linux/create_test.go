package linux

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// smallSpec is a sandbox over the host's programs, as small as can be.
func smallSpec(t testing.TB, command ...string) driver.Spec {
	t.Helper()
	spec := driver.Spec{ID: "test", Level: bailey.IsolationProcess, Workdir: "/", Env: []string{"PATH=/usr/bin:/bin"}}
	spec.Root.Places = []driver.Place{
		{Kind: driver.Bind, Source: "/usr", Target: "/usr", IsDir: true, ReadOnly: true},
		{Kind: driver.Symlink, Source: "usr/bin", Target: "/bin"},
		{Kind: driver.Symlink, Source: "usr/lib", Target: "/lib"},
		{Kind: driver.Symlink, Source: "usr/lib64", Target: "/lib64"},
		{Kind: driver.File, Target: "/etc/passwd", Content: []byte("root:x:0:0::/:/bin/sh\n"), Mode: 0o644},
	}
	spec.Entry.Command = command
	return spec
}

func run(t testing.TB, d *Driver, spec driver.Spec) (string, bailey.End) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec.Entry.Stdio = [3]*os.File{nil, w, w}
	in, err := d.Create(context.Background(), spec)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(r)
	<-in.Done()
	if err := in.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
	return string(out), in.End()
}

func TestProbe(t *testing.T) {
	d := New(Options{State: t.TempDir()})
	for _, level := range []bailey.Isolation{bailey.IsolationProcess, bailey.IsolationContainer} {
		c := d.Probe(context.Background(), level)
		if !c.Available || !c.Overlay {
			t.Errorf("%s: %+v", level, c)
		}
		t.Logf("%s: %+v", level, c)
	}
}

func BenchmarkCreate(b *testing.B) {
	d := New(Options{State: b.TempDir()})
	for b.Loop() {
		run(b, d, smallSpec(b, "/bin/echo", "hi"))
	}
}
