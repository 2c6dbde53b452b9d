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

func TestFirst(t *testing.T) {
	d := New(Options{State: t.TempDir()})
	out, end := run(t, d, smallSpec(t, "sh", "-c", "id; ls -la / /dev /proc/sys | head -60; cat /proc/self/status | grep -E 'Cap|Sec|NoNew'; cat /proc/self/uid_map; cat /proc/mounts; ps ax; exit 5"))
	t.Log(out)
	t.Log(end)
}

func BenchmarkCreate(b *testing.B) {
	d := New(Options{State: b.TempDir()})
	for b.Loop() {
		run(b, d, smallSpec(b, "/bin/echo", "hi"))
	}
}
