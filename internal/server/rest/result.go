package rest

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

const (
	// maxResults bounds the output that the answers of all requests have in memory at
	// once, in bytes. Each is there some more times while it is put into words.
	maxResults = 512 << 20
	// smallResult is how much is kept while a command goes on; of more, its end is
	// read again once it has ended.
	smallResult = 256 << 10
)

// results is the room for output in answers.
type results struct {
	mu   sync.Mutex
	most int64
	used int64
}

func (r *results) take(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+n > r.most {
		return false
	}
	r.used += n
	return true
}

func (r *results) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
}

// takenKey leads to the bytes that a request has taken of results, which are given back
// when its answer is written.
type takenKey struct{}

// result waits for an exec's end and gathers the end of its output. Nothing of what is
// large is held before the end.
func (s *Server) result(ctx context.Context, ref, id string, tail int64) (api.ExecResult, error) {
	if tail == 0 {
		tail = defaultTail
	}
	taken, _ := ctx.Value(takenKey{}).(*int64)
	ctx, cancel := s.streaming(ctx)
	defer cancel()
	var r api.ExecResult
	end, small := map[api.Stream]int64{}, true
	gather := func(ev api.OutputEvent) {
		if ev.Stream == api.Stderr {
			r.Err = append(r.Err, ev.Data...)
		} else {
			r.Out = append(r.Out, ev.Data...)
		}
	}
	err := s.engine.Output(ctx, caller(ctx), ref, id, map[api.Stream]int64{api.Stdout: 0, api.Stderr: 0}, true, func(ev api.OutputEvent) error {
		switch {
		case ev.Error != nil:
			return ev.Error
		case ev.Exec != nil:
			r.Exec = *ev.Exec
			return nil
		case ev.Dropped > 0:
			r.Truncated = true
		}
		if len(ev.Data) == 0 {
			return nil
		}
		end[ev.Stream] = ev.Offset + int64(len(ev.Data))
		if small = small && end[api.Stdout]+end[api.Stderr] <= smallResult; small {
			gather(ev)
		} else {
			r.Out, r.Err = nil, nil
		}
		return nil
	})
	if err == nil && r.ID == "" {
		err = bailey.Errorf(bailey.CodeInternal, "wait for the command", "", "its output ended and nothing said how it did")
	}
	if err != nil {
		return r, err
	}
	from := map[api.Stream]int64{}
	for stream, to := range end {
		from[stream] = max(0, to-tail)
		r.Truncated = r.Truncated || from[stream] > 0
	}
	if small {
		r.Out, r.Err = r.Out[max(0, int64(len(r.Out))-tail):], r.Err[max(0, int64(len(r.Err))-tail):]
		return r, nil
	}
	n := end[api.Stdout] - from[api.Stdout] + end[api.Stderr] - from[api.Stderr]
	if taken == nil || !s.results.take(n) {
		return r, bailey.Errorf(bailey.CodeBusy, "answer with the output of the command "+id, "read its output by its id, or ask for a shorter tail", "it has ended, and the answers of all requests have too much output already")
	}
	*taken += n
	r.Out, r.Err = make([]byte, 0, end[api.Stdout]-from[api.Stdout]), make([]byte, 0, end[api.Stderr]-from[api.Stderr])
	for _, stream := range []api.Stream{api.Stdout, api.Stderr} {
		if _, ok := from[stream]; !ok {
			from[stream] = 0
		}
	}
	err = s.engine.Output(ctx, caller(ctx), ref, id, from, false, func(ev api.OutputEvent) error {
		r.Truncated = r.Truncated || ev.Dropped > 0
		ev.Data = ev.Data[:min(int64(len(ev.Data)), max(0, end[ev.Stream]-ev.Offset))] // what came later is not counted
		gather(ev)
		return nil
	})
	r.Truncated = r.Truncated || err != nil // it may have been deleted meanwhile
	return r, ctx.Err()
}

// bounded is a writer of answers to whom a client that takes nothing for slow is gone.
type bounded struct {
	http.ResponseWriter
	rc *http.ResponseController
}

// Unwrap is for http.ResponseController.
func (b *bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// Write implements io.Writer. A long answer goes in pieces: a slow client has its time
// for each.
func (b *bounded) Write(p []byte) (n int, err error) {
	const piece = 256 << 10
	for {
		part := p[n:min(len(p), n+piece)]
		b.rc.SetWriteDeadline(time.Now().Add(slow))
		k, err := b.ResponseWriter.Write(part)
		n += k
		if err != nil || n >= len(p) {
			return n, err
		}
	}
}
