package lifebench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// The bounds. A sandbox is quiet when no process of its user lives.
const (
	goalFork   = 30.0 // milliseconds
	goalSeal   = 30.0
	goalGrowth = 1.5 // of the largest tree, as a part of one file's
)

// tree is a sandbox with files.
type tree struct {
	created
	files  int
	writes int
}

// sizes are those of trees: 1, 1,000 and the largest.
func (b *bench) sizes() []int {
	if b.opt.Files <= 1000 {
		return []int{1, b.opt.Files}
	}
	return []int{1, 1000, b.opt.Files}
}

// plant makes a sandbox with a tree of so many files.
func (b *bench) plant(ctx context.Context, files int) (*tree, error) {
	s, err := b.sandbox(ctx)
	if err != nil {
		return nil, err
	}
	t := &tree{created: s, files: files}
	// 1,000 to a folder, as trees of many files have them.
	return t, t.shell(ctx, fmt.Sprintf(`set -e; mkdir "$HOME/tree"; cd "$HOME/tree"; n=%d; i=0
while [ $n -gt 0 ]; do mkdir $i; k=$n; [ $k -le 1000 ] || k=1000; (cd $i; seq 1 $k | xargs touch); n=$((n-k)); i=$((i+1)); done`, files))
}

// write makes so many new files.
func (t *tree) write(ctx context.Context, n int) error {
	t.writes++
	return t.shell(ctx, fmt.Sprintf(`set -e; mkdir "$HOME/new-%d"; cd "$HOME/new-%[1]d"; seq 1 %d | xargs touch`, t.writes, n))
}

func named(n int, what string) string {
	if n == 1 {
		return "1 file" + what
	}
	return strconv.Itoa(n) + " files" + what
}

// fork: sandboxes that begin as a quiet one is. Its first fork finds all files new
// and is told apart.
func (b *bench) fork(ctx context.Context, p pace) (m Measure, err error) {
	m.What = "fork of a quiet sandbox by the size of its tree, one file new since the last; until the fork runs"
	trees := map[*subject]*tree{}
	var first, all []*subject
	fork := func(ctx context.Context, t *tree) (v peer.Sample, drop func() error, err error) {
		begin := time.Now()
		made, err := t.Fork(ctx, api.ForkRequest{})
		v.Total = time.Since(begin)
		return v, func() error {
			var failed error
			for _, f := range made {
				failed = errors.Join(failed, f.Delete(ctx))
			}
			return failed
		}, err
	}
	for i, n := range b.sizes() {
		b.progress("fork: files", i, len(b.sizes()))
		t, err := b.plant(ctx, n)
		if err != nil {
			return m, err
		}
		once := func(ctx context.Context, _ int) (peer.Sample, error) {
			v, drop, err := fork(ctx, t)
			return v, errors.Join(err, drop())
		}
		one := &subject{name: named(n, ", first"), once: once}
		one.do(ctx, 0)
		s := &subject{name: named(n, ""), once: once}
		trees[s] = t
		first, all = append(first, one), append(all, s)
	}
	err = b.turns(ctx, p, "fork", b.opt.Turns, all, func(s *subject) error { return trees[s].write(ctx, 1) })
	m.take(first...)
	m.take(all...)
	m.growth("fork", all, goalFork)
	return m, err
}

// growth judges the largest tree by itself and beside the smallest.
func (m *Measure) growth(what string, by []*subject, goal float64) {
	small, large := m.subject(by[0].name), m.subject(by[len(by)-1].name)
	if small == nil || large == nil {
		return
	}
	m.atMost(what+", ms, "+large.Name, float64(large.Total.Median)/1e6, goal)
	m.atMost(what+", "+large.Name+" / "+small.Name, result.Ratio(large.Total.Median, small.Total.Median), goalGrowth)
}

// snapshot: by the size of the tree and by what is new in it, quiet and with a
// process that lives.
func (b *bench) snapshot(ctx context.Context, p pace) (m Measure, err error) {
	m.What = "snapshot by the size of the tree and what is new since the last; quiet: no process lives, else one sleeps"
	type delta struct {
		t   *tree
		new int
	}
	by := map[*subject]delta{}
	var quiet, live []*subject
	add := func(t *tree, name string, n int) *subject {
		s := &subject{name: name, once: func(ctx context.Context, _ int) (peer.Sample, error) {
			begin := time.Now()
			made, err := t.Snapshot(ctx, api.SnapshotSpec{})
			v := peer.Sample{Total: time.Since(begin)}
			if err == nil {
				err = b.service.c.DeleteSnapshot(ctx, made.ID)
			}
			return v, err
		}}
		by[s] = delta{t, n}
		return s
	}
	for i, n := range b.sizes() {
		b.progress("snapshot: files", i, len(b.sizes()))
		t, err := b.plant(ctx, n)
		if err != nil {
			return m, err
		}
		first := add(t, named(n, ", quiet, all new"), n)
		first.do(ctx, 0)
		m.take(first)
		quiet = append(quiet, add(t, named(n, ", quiet, 1 new"), 1))
	}
	largest := by[quiet[len(quiet)-1]].t
	forks, err := largest.Fork(ctx, api.ForkRequest{}) // all that is there is below
	if err != nil {
		return m, err
	}
	busy := &tree{created: created{forks[0]}, files: largest.files}
	if _, err := busy.Start(ctx, api.ExecSpec{Args: []string{"sleep", "1000000"}}); err != nil {
		return m, err
	}
	for _, n := range []int{1, 100, 1000} {
		live = append(live, add(busy, named(largest.files, ", live, ")+strconv.Itoa(n)+" new", n))
	}
	all := append(append([]*subject(nil), quiet...), live...)
	err = b.turns(ctx, p, "snapshot", b.opt.Turns, all, func(s *subject) error { return by[s].t.write(ctx, by[s].new) })
	m.take(all...)
	m.growth("snapshot", quiet, goalSeal)
	return m, err
}
