//go:build linux

package fault

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// moments is how many times a bailey is killed at random.
const moments = 100

// TestKilledAtRandomMoments kills bailey anywhere between its start and its end.
func TestKilledAtRandomMoments(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			s := newSite(t, who)
			variants := [][]string{s.command("process", nil, "mischief.sh"), s.command("container", nil, "mischief.sh")}
			if who.Root() {
				variants = append(variants, s.command("process", []string{"--memory", "256M", "--disk", "16M"}, "mischief.sh"))
			}
			lengths := make([]time.Duration, len(variants))
			for i, args := range variants {
				lengths[i] = s.usual(args)
			}
			s.host, s.runs = s.Host(), nil
			const seed = 20260731
			random := rand.New(rand.NewPCG(seed, uint64(who.UID)))
			killed := 0
			for i := 0; killed < moments && i < 3*moments; i++ {
				v := i % len(variants)
				after := time.Duration(random.Int64N(int64(lengths[v])))
				what := fmt.Sprintf("killed after %v of about %v", after, lengths[v])
				cmd := s.Bailey(variants[v]...)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				// Not a wait for something: the moment is what is tested.
				time.Sleep(after)
				namespaces := rig.Namespaces(rig.Descendants())
				cmd.Process.Kill()
				cmd.Wait()
				if cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
					killed++
				}
				s.aftermath(what, namespaces)
				if i%10 == 9 {
					s.settle(what, "interrupted", "kept")
				}
			}
			s.settle("the last", "interrupted", "kept")
			if killed < moments {
				t.Errorf("only %d were killed before they ended", killed)
			}
		})
	}
}

// usual is how long such a run takes.
func (s *site) usual(args []string) time.Duration {
	var list []time.Duration
	for range 5 {
		begin := time.Now()
		s.Must(args...)
		list = append(list, time.Since(begin))
		s.Must("discard", "--all")
	}
	sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
	return list[len(list)/2]
}
