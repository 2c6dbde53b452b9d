package gvisor_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/gvisor"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// A counter and a file that is open go on where they were.
func TestMemoryGoesOn(t *testing.T) {
	r := newRig(t)
	spec := r.spec()
	in, c := r.stays(spec)
	spec.Entry.Command, spec.Entry.Agent = nil, filepath.Join(programs(t), "bailey-init")
	const counter = "exec 3>/root/open; n=0; while :; do n=$((n+1)); echo $n >&3; echo $n >/root/n.new; mv /root/n.new /root/n; sleep 0.1; done"
	if _, err := c.Exec(t.Context(), guest.ExecSpec{ID: "n", Argv: []string{"/bin/sh", "-c", counter}, Env: []string{"PATH=/bin"}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		says(t, c, "sh", "-c", "until test -s /root/n; do sleep 0.1; done")
		before, _ := strconv.Atoi(strings.TrimSpace(says(t, c, "cat", "/root/n")))
		dir := t.TempDir()
		m, err := in.(driver.Suspender).Suspend(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if err := in.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		// As the engine does: an overlay without syncs refuses a second life of its work folder.
		for _, name := range []string{"", "/incompat", "/incompat/volatile"} {
			os.Chmod(filepath.Join(r.layer, "work/work"+name), 0o700)
		}
		if err := os.RemoveAll(filepath.Join(r.layer, "work/work")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := r.d.Restore(t.Context(), spec, m, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { next.Destroy(t.Context()) })
		in, c = next.(driver.Staying), r.speak(next)
		says(t, c, "sh", "-c", "n=$(cat /root/n); until test $(cat /root/n) -gt $n; do sleep 0.1; done")
		if after, _ := strconv.Atoi(strings.TrimSpace(says(t, c, "cat", "/root/n"))); after <= before {
			t.Errorf("%d after %d", after, before)
		}
	}
}

// What goes on from a copy is another sandbox from its first instruction on; the first one
// goes on where it was, also when whoever copied it died in the middle.
func TestMemoryOfOneThatRunsOn(t *testing.T) {
	r := newRig(t)
	spec := r.spec()
	in, c := r.stays(spec)
	spec.Entry.Command, spec.Entry.Agent = nil, filepath.Join(programs(t), "bailey-init")
	const counter = "n=0; while :; do n=$((n+1)); hostname >/tmp/name.new; mv /tmp/name.new /tmp/name; echo $n >/root/n.new; mv /root/n.new /root/n; sleep 0.02; done"
	if _, err := c.Exec(t.Context(), guest.ExecSpec{ID: "n", Argv: []string{"/bin/sh", "-c", counter}, Env: []string{"PATH=/bin"}}); err != nil {
		t.Fatal(err)
	}
	says(t, c, "sh", "-c", "until test -s /root/n; do sleep 0.1; done")
	goesOn := func(c *guest.Client) {
		t.Helper()
		says(t, c, "sh", "-c", "n=$(cat /root/n); until test $(cat /root/n) -gt $n; do sleep 0.02; done")
	}
	child := *r
	child.layer = layer(t)
	dir, at := t.TempDir(), ""
	m, err := in.(driver.Copier).Copy(t.Context(), dir, func() error {
		b, err := os.ReadFile(filepath.Join(r.layer, "upper/root/n"))
		if err == nil {
			at = string(b)
			var out []byte
			if out, err = exec.Command("cp", "-a", filepath.Join(r.layer, "upper"), child.layer).CombinedOutput(); err != nil {
				t.Error(string(out))
			}
		}
		again, _ := os.ReadFile(filepath.Join(r.layer, "upper/root/n"))
		if string(again) != at {
			t.Errorf("it did not stand still: %q and %q", at, again)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	goesOn(c)
	if _, err := in.(driver.Copier).Copy(t.Context(), t.TempDir(), func() error { return os.ErrInvalid }); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("files that could not be copied: %v", err)
	}
	goesOn(c)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := child.spec()
	s.ID, s.Own, s.Hostname, s.Entry = "another", filepath.Join(r.state, "another"), "another", spec.Entry
	next, err := r.d.Restore(t.Context(), s, m, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Destroy(t.Context()) })
	d := child.speak(next)
	goesOn(d)
	if out := says(t, d, "cat", "/tmp/name"); out != "another\n" {
		t.Errorf("its processes see the host name %q", out)
	}
	goesOn(c)
	if out := says(t, c, "hostname"); out != "inside\n" {
		t.Errorf("the first one is %q", out)
	}
	// Whoever copies it dies.
	func() {
		defer func() { recover() }()
		in.(driver.Copier).Copy(t.Context(), t.TempDir(), func() error { panic("died") })
		t.Error("it did not die")
	}()
	if err := in.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	goesOn(c)
}

// A sandbox whose gVisor is no longer the one that is installed runs on: with its memory
// nobody could go on.
func TestMemoryOfAnotherVersion(t *testing.T) {
	r := newRig(t)
	dir := programs(t)
	runsc := filepath.Join(t.TempDir(), "runsc")
	install := func() {
		t.Helper()
		if out, err := exec.Command("cp", filepath.Join(dir, "runsc"), runsc+".new").CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		if err := os.Rename(runsc+".new", runsc); err != nil {
			t.Fatal(err)
		}
	}
	install()
	r.d = gvisor.New(gvisor.Options{Outer: linux.New(linux.Options{State: r.state}), State: r.state, Runsc: runsc, Cell: filepath.Join(dir, "bailey-cell")})
	in, c := r.stays(r.spec())
	install()
	if _, err := in.(driver.Suspender).Suspend(t.Context(), t.TempDir()); bailey.CodeOf(err) != bailey.CodeNotAvailable || !strings.Contains(err.Error(), "anew") {
		t.Error(err)
	}
	if out := says(t, c, "echo", "on"); out != "on\n" {
		t.Errorf("%q", out)
	}
}
