package testneeds

import (
	"os"
	"strings"
	"testing"
)

// TestProbes tries every probe: each must come to an answer, and say what it saw
// when the answer is no.
func TestProbes(t *testing.T) {
	for f := range probes {
		t.Run(string(f), func(t *testing.T) {
			if ok, detail := f.Probe(); !ok && detail == "" {
				t.Error("it says no, and not why")
			} else {
				t.Log(ok, detail)
			}
		})
	}
	if ok, _ := Feature("moon-phase").Probe(); ok || Feature("moon-phase").Known() {
		t.Error("an unknown feature is there")
	}
}

// skipped runs f and gives the reason with which it skipped.
func skipped(t *testing.T, f func(testing.TB)) (reason string) {
	t.Helper()
	rec := &recorder{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(rec) {
				panic(r)
			}
		}()
		f(rec)
	}()
	return rec.reason
}

type recorder struct {
	testing.TB
	reason string
}

func (r *recorder) Skip(args ...any) {
	r.reason = args[0].(string)
	panic(any(r))
}

func TestReasons(t *testing.T) {
	root := os.Geteuid() == 0
	for name, c := range map[string]struct {
		f    func(testing.TB)
		want string
	}{
		"root":     {func(t testing.TB) { Root(t, "mounting") }, map[bool]string{false: "needs root: mounting"}[root]},
		"ordinary": {func(t testing.TB) { Ordinary(t, "refusal") }, map[bool]string{true: "needs an ordinary user: refusal"}[root]},
		"there":    {func(t testing.TB) { Tool(t, "sh", "ls") }, ""},
		"absent":   {func(t testing.TB) { Tool(t, "sh", "no-such-program") }, "needs tool no-such-program"},
		"lacks":    {func(t testing.TB) { Lacks(t, Overlay, "refused") }, "needs host overlay: refused"},
		"host":     {func(t testing.TB) { Host(t, "moon-phase") }, "needs host moon-phase: no probe is known for it"},
	} {
		if got := skipped(t, c.f); got != c.want {
			t.Errorf("%s: %q, wanted %q", name, got, c.want)
		}
	}
	if got := Tool(t, "sh"); !strings.HasSuffix(got, "/sh") {
		t.Errorf("sh is %q", got)
	}
}
