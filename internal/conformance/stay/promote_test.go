//go:build linux

package stay

import (
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// TestPromote: a sandbox goes from one level to the next, and has the same files at each.
func TestPromote(t *testing.T) {
	y := rig.New(t, rig.Self()).WithLevels()
	y.Serve()
	y.Must("create", "--isolation", "container", "--name", "box", "--env", "FOO=bar")
	const look = "cd /root && stat -c '%n %a %u %g' f d && cat f && echo $FOO"
	was := y.Must("exec", "box", "--", "sh", "-c", "cd /root && echo one > f && chmod 640 f && mkdir -m 700 d && "+look)
	kernel := func() string { return strings.TrimSpace(y.Must("exec", "box", "--", "uname", "-r")) }
	kernels := []string{kernel()}
	for _, level := range []string{"gvisor", "microvm"} {
		says(t, y, 0, level, "promote", "box", level)
		if got := y.Must("exec", "box", "--", "sh", "-c", look); got != was {
			t.Errorf("at %s it has %q, and had %q", level, got, was)
		}
		k := kernel()
		for _, other := range kernels {
			if k == other {
				t.Errorf("at %s its kernel is %s, as before", level, k)
			}
		}
		kernels = append(kernels, k)
	}
	says(t, y, bailey.ExitBailey, "never weakens", "promote", "box", "container")
	says(t, y, bailey.ExitBailey, "[usage]", "promote", "box", "stronger")
	y.Must("rm", "box")
}
