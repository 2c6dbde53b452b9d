package engine

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"math"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/execlog"
)

// outputPiece is the most that one event has, in bytes.
const outputPiece = 64 << 10

// streamsOf are an exec's streams in the order of execlog's.
var streamsOf = [...]api.Stream{api.Stdout, api.Stderr}

// Output calls each with an exec's output from the offsets on; of a stream whose
// offset is the highest int64 nothing is wanted, and one behind what is there is an
// error with code usage. With follow it goes on until the exec has ended and all
// that it printed is told, and the last event has Exec; what processes that it left
// behind print later is there for the next call. When its sandbox ended under it
// the error has code sandbox_lost or sandbox_ended, after all output.
func (e *Engine) Output(ctx context.Context, who Caller, ref, id string, from map[api.Stream]int64, follow bool, each func(api.OutputEvent) error) error {
	x, doc, b, err := e.findExec(ctx, who, ref, id)
	if err != nil {
		return err
	}
	f := &following{each: each}
	if x != nil {
		f.log = x.log
	} else if b != nil {
		if f.log, err = execlog.Open(e.logDir(b, doc.Exec.ID), doc.Limit); err != nil {
			return err
		}
	}
	if f.log == nil || x == nil && doc.kept() == 0 {
		err = f.gone(doc, from)
	} else {
		defer f.close()
		if err = f.open(from); err == nil {
			err = f.run(ctx, e, x, follow)
		}
		if errors.Is(err, fs.ErrNotExist) && deleted(b) {
			// And its output with it.
			if x != nil {
				select {
				case <-x.ended:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				doc = x.known()
			}
			err = f.gone(doc, f.reached(from))
		}
	}
	if err != nil || !follow {
		return err
	}
	if x != nil {
		doc = x.known()
	}
	if err := lostError(doc); err != nil {
		return err
	}
	e.showLeft(ctx, b, &doc.Exec, doc.Guest)
	return each(api.OutputEvent{Exec: &doc.Exec})
}

// deleted says that a sandbox is being deleted or has been; nil is one that is gone.
func deleted(b *box) bool {
	if b == nil {
		return true
	}
	s := b.record().Sandbox.State
	return s == api.StateDeleting || s == api.StateEnded
}

// kept gives how many bytes of output are kept of one that is closed.
func (d execDoc) kept() int64 {
	return d.Exec.Stdout.To - d.Exec.Stdout.From + d.Exec.Stderr.To - d.Exec.Stderr.From
}

// following is one reader of an exec's output.
type following struct {
	log     *execlog.Log
	readers [2]*execlog.Reader // nil where nothing is wanted
	each    func(api.OutputEvent) error
}

// gone tells that nothing of the output is kept any more.
func (f *following) gone(doc execDoc, from map[api.Stream]int64) error {
	for i, s := range streamsOf {
		to := [...]int64{doc.Exec.Stdout.To, doc.Exec.Stderr.To}[i]
		if from[s] >= to {
			continue
		}
		if err := f.each(api.OutputEvent{Stream: s, Offset: to, Dropped: to - from[s]}); err != nil {
			return err
		}
	}
	return nil
}

func (f *following) open(from map[api.Stream]int64) (err error) {
	for i, s := range streamsOf {
		if from[s] == math.MaxInt64 {
			continue
		}
		if f.readers[i], err = f.log.Reader(execlog.Stream(i), from[s]); err != nil {
			return err
		}
	}
	return nil
}

// reached gives how far each stream was told.
func (f *following) reached(from map[api.Stream]int64) map[api.Stream]int64 {
	at := maps.Clone(from)
	if at == nil {
		at = map[api.Stream]int64{}
	}
	for i, r := range f.readers {
		if r != nil {
			at[streamsOf[i]] = r.Offset()
		}
	}
	return at
}

func (f *following) close() {
	for _, r := range f.readers {
		if r != nil {
			r.Close()
		}
	}
}

// run tells what there is, and with follow what comes until the end. x is nil when
// no more can come.
func (f *following) run(ctx context.Context, e *Engine, x *execution, follow bool) error {
	over := !follow || x == nil
	var stop [2]int64 // where to stop, once it is over
	mark := func() { stop = [2]int64{f.log.Info(execlog.Stdout).To, f.log.Info(execlog.Stderr).To} }
	if over {
		mark()
	}
	buf := make([]byte, outputPiece)
	for {
		changed := f.log.Changed()
		if !over {
			select {
			case <-x.ended: // all that it printed is there by now
				over = true
				mark()
			default:
			}
		}
		more := false
		for i, r := range f.readers {
			if r == nil || over && r.Offset() >= stop[i] {
				continue
			}
			n, offset, dropped, err := r.Read(buf)
			if err != nil {
				return err
			}
			if n == 0 && dropped == 0 {
				continue
			}
			more = true
			if err := f.each(api.OutputEvent{Stream: streamsOf[i], Offset: offset, Data: bytes.Clone(buf[:n]), Dropped: dropped}); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if more {
			continue
		}
		if over {
			return nil
		}
		select {
		case <-changed:
		case <-x.ended:
		case <-ctx.Done():
			return ctx.Err()
		case <-e.ctx.Done():
			return bailey.Errorf(bailey.CodeDaemonUnavailable, "follow the command", "go on from the last offset", "the daemon is being stopped")
		}
	}
}
