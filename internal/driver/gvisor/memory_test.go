package gvisor_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/driver"
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
