//go:build linux

package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/layers"
)

// quietWithin is how long a snapshot of a quiet sandbox, and the start of a fork's
// files, may take, whatever it has written.
const quietWithin = 30 * time.Millisecond

// manyFiles writes n files into a sandbox.
func manyFiles(t testing.TB, e *Engine, id string, n int) {
	t.Helper()
	sh(t, e, id, fmt.Sprintf("mkdir ~/many && cd ~/many && seq %d | xargs touch", n))
}

// What a snapshot, a checkpoint and a fork of a quiet sandbox cost does not grow
// with what it has written: the best of some tries, as others use the machine too.
func TestSnapshotCostDoesNotGrow(t *testing.T) {
	e := openEngine(t)
	a := create(t, e, process)
	best := func(n, tries int, enough time.Duration) time.Duration {
		manyFiles(t, e, a.ID, n)
		least := time.Hour
		for i := 0; i < tries && least > enough; i++ {
			sh(t, e, a.ID, "echo >>~/f")
			s := checkpoint(t, e, a.ID, "")
			if s.Receipt.Method != layers.Sealed {
				t.Fatalf("the method is %s", s.Receipt.Method)
			}
			least = min(least, time.Duration(s.Receipt.Took))
		}
		sh(t, e, a.ID, "rm -r ~/many")
		return least
	}
	few := best(1, 5, 0)
	most := 4*few + quietWithin
	many := best(20_000, 100, most)
	t.Logf("with 1 file %s, with 20,000 %s", few, many)
	if many > most {
		t.Errorf("with 1 file it takes %s, with 20,000 %s", few, many)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e := openEngine(b)
			a := create(b, e, process)
			manyFiles(b, e, a.ID, n)
			var took, forks time.Duration
			i := 0
			for b.Loop() {
				i++
				b.StopTimer()
				sh(b, e, a.ID, "echo >>~/f")
				b.StartTimer()
				s := checkpoint(b, e, a.ID, fmt.Sprintf("c%d", i))
				took += time.Duration(s.Receipt.Took)
				b.StopTimer()
				sh(b, e, a.ID, "echo >>~/f")
				began := time.Now()
				f, err := e.Fork(b.Context(), me, a.ID, api.ForkRequest{})
				if err != nil {
					b.Fatal(err)
				}
				forks += time.Since(began)
				wipe(b, e, f[0].ID)
				b.StartTimer()
			}
			b.ReportMetric(float64(took.Microseconds())/float64(i), "µs/snapshot")
			b.ReportMetric(float64(forks.Microseconds())/float64(i), "µs/fork")
		})
	}
}
