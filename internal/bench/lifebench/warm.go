package lifebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// keptReady is how many sandboxes the daemon of the warm measure keeps ready. One is
// taken at a time, and the next is asked for when there are so many again: what is
// made ahead is not made while something is measured.
const keptReady = 2

// warmed: the sandbox was made before it was asked for. It has a daemon of its own,
// since whoever measures what is made anew must not share the machine with a pool that
// fills itself.
func (b *bench) warmed(ctx context.Context, p pace) (m Measure, err error) {
	m.What = fmt.Sprintf("one after the other, in turns, from %d kept ready, the first command is echo hi: %s", keptReady, howCreated)
	dir := filepath.Join(b.dir, "warm")
	if err := os.Mkdir(dir, 0o711); err != nil {
		return m, bailey.Errorf(bailey.CodeStorage, "make a folder for the benchmark", "", "%w", err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "warm: [{template: host, level: container, count: %d}]\n", keptReady), 0o600); err != nil {
		return m, bailey.Errorf(bailey.CodeStorage, "write the benchmark's configuration", "", "%w", err)
	}
	own, err := startService(ctx, dir, b.opt.Programs, "", "--config", config)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, own.stop(), folder.RemoveTree(dir)) }()
	// A control group has its limits from its begin on: what is kept ready has those
	// that hold by default.
	ready := &bench{opt: b.opt, service: own}
	taker := ready.ours(bailey.IsolationContainer, warm, echo)
	taker.features = append(b.features(bailey.IsolationContainer), "made before it was asked for", "limits by default")
	all := []*subject{taker}
	other, err := b.peer(1, echo)
	if err != nil {
		return m, err
	}
	if other != nil {
		all = append(all, other)
	}
	between := func(s *subject) error {
		if s == taker {
			return own.filled(ctx)
		}
		return nil
	}
	for _, s := range all {
		if err := between(s); err != nil {
			return m, err
		}
		s.do(ctx, 0)
		s.again()
	}
	err = b.turns(ctx, p, "warm", b.opt.Rounds, all, between)
	m.take(all...)
	if ours, theirs := m.subject(warm), m.subject(crun); ours != nil && theirs != nil && ours.First != nil && theirs.First != nil {
		m.atMost("first output, "+warm+" / crun", result.Ratio(ours.First.Median, theirs.First.Median), goalWarm)
		m.atMost("first output of all, "+warm+" / crun", result.Ratio(ours.Total.Median, theirs.Total.Median), 0)
	}
	if ours := m.subject(warm); ours != nil {
		m.Targets = append(m.Targets, result.AtLeast("success, "+warm, ours.Success, 1))
	}
	if b.crun == nil {
		m.miss(crun, b.noCrun)
	}
	return m, err
}

// filled waits until the daemon has as many ready as it is to keep.
func (s *service) filled(ctx context.Context) error {
	late := time.After(socketWait)
	for {
		info, err := s.c.Info(ctx)
		if err != nil {
			return err
		}
		full := len(info.Warm) > 0
		for _, w := range info.Warm {
			full = full && w.Ready >= w.Wanted
		}
		if full {
			return nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			return bailey.Errorf(bailey.CodeBusy, "measure what is kept ready", "", "the daemon had none ready within %s: %s", socketWait, s.words())
		}
	}
}
