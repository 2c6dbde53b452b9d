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

// readyService starts a daemon that keeps sandboxes of a level ready. Whoever measures what is
// made anew must not share the machine with a pool that fills itself. end stops it.
func (b *bench) readyService(ctx context.Context, level bailey.Isolation) (own *service, end func() error, err error) {
	dir := filepath.Join(b.dir, "warm-"+level.String())
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, nil, bailey.Errorf(bailey.CodeStorage, "make a folder for the benchmark", "", "%w", err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "warm: [{template: host, level: %s, count: %d}]\n", level, keptReady), 0o600); err != nil {
		return nil, nil, bailey.Errorf(bailey.CodeStorage, "write the benchmark's configuration", "", "%w", err)
	}
	if own, err = startService(ctx, dir, b.opt.Programs, "", "--config", config); err != nil {
		return nil, nil, err
	}
	return own, func() error { return errors.Join(own.stop(), folder.RemoveTree(dir)) }, nil
}

// taker takes sandboxes that are ready.
func (b *bench) taker(own *service, level bailey.Isolation, name string) *subject {
	// A control group has its limits from its begin on: what is kept ready has those
	// that hold by default.
	s := (&bench{opt: b.opt, service: own}).fromReady(level, name, echo)
	s.features = append(b.features(level), "made before it was asked for", "limits by default")
	return s
}

// warmed: the sandbox was made before it was asked for.
func (b *bench) warmed(ctx context.Context, p pace) (m Measure, err error) {
	m.What = fmt.Sprintf("one after the other, in turns, from %d kept ready, the first command is echo hi: %s", keptReady, howCreated)
	own, end, err := b.readyService(ctx, bailey.IsolationContainer)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, end()) }()
	taker := b.taker(own, bailey.IsolationContainer, warm)
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
