package gatebench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// path is what is asked for.
const answerPath = "/v1/models"

// get makes one request and reads its answer, of which there have to be want
// bytes.
func get(ctx context.Context, c *http.Client, url, credential string, want int64) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "bailey-bench/1")
	if credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && n != want {
		err = fmt.Errorf("%d bytes came in place of %d", n, want)
	}
	return err
}

// rate makes requests, so many at once, until the time is over, and gives how
// many were answered in a second.
func rate(ctx context.Context, workers int, slot time.Duration, one func(context.Context) error) (float64, error) {
	var (
		all    sync.WaitGroup
		count  atomic.Int64
		failed atomic.Pointer[error]
	)
	begin := time.Now()
	for range workers {
		all.Go(func() {
			for time.Since(begin) < slot && failed.Load() == nil {
				if err := one(ctx); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				count.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(begin)
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(count.Load()) / took.Seconds(), nil
}

// latencyMost bounds how many requests of one turn are timed.
const latencyMost = 500

// latency makes requests one after the other, and gives how long each took.
func latency(ctx context.Context, slot time.Duration, one func(context.Context) error) (took []time.Duration, err error) {
	for begin := time.Now(); time.Since(begin) < slot && len(took) < latencyMost; {
		at := time.Now()
		if err := one(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(at))
	}
	return took, nil
}
