package image

import (
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// teller tells how far a pull is, no more often than somebody can read.
type teller struct {
	each func(api.Progress)

	mu    sync.Mutex
	have  map[string]int64 // by layer
	total int64
	last  time.Time
}

const tellEvery = 100 * time.Millisecond

func (t *teller) step(what string, done, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.each != nil {
		t.each(api.Progress{Step: what, Done: done, Total: total})
	}
}

func (t *teller) begin(layers []v1.Descriptor, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.have, t.total = map[string]int64{}, total
	for _, l := range layers {
		t.have[l.Digest.Hex] = 0
	}
}

// layer is told how much there is of a layer.
func (t *teller) layer(hex string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.have[hex] = n
	if t.each == nil || time.Since(t.last) < tellEvery {
		return
	}
	t.last = time.Now()
	var sum int64
	for _, n := range t.have {
		sum += n
	}
	t.each(api.Progress{Step: "download", Done: sum, Total: t.total})
}
