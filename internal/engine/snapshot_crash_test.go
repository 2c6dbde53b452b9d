//go:build linux

package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

func init() {
	ops["checkpoint"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		_, err = e.Checkpoint(ctx, me, o.Ref, o.ID)
		return a, err
	}
	ops["undo"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		a.Receipt, err = e.Undo(ctx, me, o.Ref, api.UndoRequest{To: o.ID, Kill: true})
		return a, err
	}
	ops["fork"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		a.Sandboxes, err = e.Fork(ctx, me, o.Ref, api.ForkRequest{Name: o.ID})
		return a, err
	}
	ops["layers"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		list, err := e.unusedLayers(ctx)
		a.Out = fmt.Sprint(len(e.layers.All()), " ", len(list))
		return a, err
	}
}

// snapCourse is what the crash test of snapshots does. want is what the file holds
// afterwards.
var snapCourse = []struct {
	order
	want string
}{
	{order{Op: "create", Spec: api.SandboxSpec{Isolation: bailey.IsolationProcess, IdempotencyKey: "k", Name: "s"}}, ""},
	{order{Op: "sh", ID: "1", Script: "cd; echo 1 >>f"}, "1"},
	{order{Op: "checkpoint", ID: "quiet"}, "1"},
	{order{Op: "sh", ID: "2", Script: "cd; echo 2 >>f; sleep 1000 </dev/null >/dev/null 2>&1 &"}, "12"},
	{order{Op: "checkpoint", ID: "live"}, "12"},
	{order{Op: "sh", ID: "3", Script: "cd; echo 3 >>f"}, "123"},
	{order{Op: "undo", ID: "live"}, "12"},
	{order{Op: "undo", ID: "quiet"}, "1"},
	{order{Op: "fork", ID: "child"}, "1"},
	{order{Op: "undo", ID: "live"}, "12"},
}

// TestCrashInSnapshots kills the engine before each of its steps while files are
// sealed, copied, taken back and forked: afterwards they are what they were before,
// or what they should be, and in the end no layer is left over.
func TestCrashInSnapshots(t *testing.T) {
	d := startDaemon(t)
	d.killAt(0)
	liveSnapshots(t, d, false)
	steps := d.steps()
	t.Logf("%d steps: %s", len(steps), strings.Join(steps, ", "))
	for n := 1; n <= len(steps); n++ {
		// One in twelve of the steps that are not of snapshots alone, which other tests
		// have too.
		own := strings.Contains(steps[n-1], "snapshot") || strings.Contains(steps[n-1], "seal") || strings.Contains(steps[n-1], "capture")
		if !own && n%12 != 1 || (raced || testing.Short()) && n%3 != 1 {
			continue
		}
		t.Run(strings.ReplaceAll(strconv.Itoa(n)+" "+steps[n-1], " ", "-"), func(t *testing.T) {
			d := startDaemon(t)
			d.killAt(n)
			liveSnapshots(t, d, true)
		})
	}
}

func liveSnapshots(t *testing.T, d *daemon, dies bool) {
	died := 0
	// try repeats an order until it is answered, as a client would.
	try := func(o order) answer {
		for {
			a, err := d.tell(o)
			switch {
			case err == nil && (a.Err == "" || a.Code == bailey.CodeConflict || a.Code == bailey.CodeNotFound):
				return a // done, or it was done when it died
			case err == nil:
				t.Fatalf("%s: %s", o.Op, a.Err)
			}
			if died++; died > 1 || !dies {
				t.Fatalf("it died at %s", o.Op)
			}
			for _, s := range d.do(order{Op: "list"}).Sandboxes {
				if !isStable(s.State) || s.State == api.StateLost {
					t.Fatalf("killed in %s, and it is %s: %v", o.Op, s.State, s.End)
				}
			}
		}
	}
	for i, o := range snapCourse {
		o.Ref = "s"
		try(o.order)
		if o.want == "" {
			continue
		}
		a := try(order{Op: "sh", Ref: "s", ID: fmt.Sprintf("look-%d", i), Script: "cd; sort -u f | tr -d '\\n'"})
		if a.Out != o.want {
			t.Fatalf("after %s %s: the file has %q and not %q", o.Op, o.ID, a.Out, o.want)
		}
	}
	if a := try(order{Op: "sh", Ref: "child", ID: "look", Script: "cd; cat f"}); a.Out != "1" {
		t.Errorf("the fork has %q", a.Out)
	}
	try(order{Op: "delete", Ref: "s"})
	try(order{Op: "delete", Ref: "child"})
	eventually(t, 30*time.Second, "no layer is left over", func() bool { return d.do(order{Op: "layers"}).Out == "0 0" })
	d.clean()
}
