//go:build linux

package engine

import (
	"fmt"
	"io"
	"testing"

	"github.com/bailey-sandbox/bailey/api"
)

// BenchmarkExec is a command from its start to its known end, one after the other
// and fifty at once.
func BenchmarkExec(b *testing.B) {
	e := openEngine(b)
	s := create(b, e, process)
	one := func() {
		x, err := e.StartExec(b.Context(), me, s.ID, api.ExecSpec{Args: []string{"true"}})
		if err == nil {
			_, err = e.WaitExec(b.Context(), me, s.ID, x.ID)
		}
		if err != nil {
			b.Error(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			one()
		}
	})
	b.Run("fifty", func(b *testing.B) {
		b.SetParallelism(25) // times the processors
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				one()
			}
		})
	})
}

// BenchmarkExecOutput is output from the command through its log to a follower.
func BenchmarkExecOutput(b *testing.B) {
	e := openEngine(b)
	s := create(b, e, process)
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		x := begin(b, e, s.ID, shell(fmt.Sprintf("head -c %d /dev/zero", size)))
		n := 0
		if err := e.Output(b.Context(), me, s.ID, x.ID, nil, true, func(ev api.OutputEvent) error { n += len(ev.Data) + int(ev.Dropped); return nil }); err != nil || n != size {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkFiles is a file written and read again.
func BenchmarkFiles(b *testing.B) {
	e := openEngine(b)
	s := create(b, e, process)
	const size = 64 << 20
	b.Run("write", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if _, err := e.WriteFile(b.Context(), me, s.ID, "/tmp/f", 0, io.LimitReader(zeros{}, size)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			r, _, err := e.ReadFile(b.Context(), me, s.ID, "/tmp/f", 0, -1)
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, r); n != size || err != nil {
				b.Fatal(n, err)
			}
			r.Close()
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
