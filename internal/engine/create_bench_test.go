//go:build linux

package engine

import (
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// BenchmarkCreate is a sandbox from the call to the first command that has ended,
// made anew and taken from those that are ready. Its end is not in it.
func BenchmarkCreate(b *testing.B) {
	for name, warm := range map[string]int{"cold": 0, "warm": 2} {
		b.Run(name, func(b *testing.B) {
			e := openEngine(b, func(o *Options) {
				if warm > 0 {
					o.Warm = []Warm{{Level: bailey.IsolationContainer, Count: warm}}
				}
			})
			spec := api.SandboxSpec{Isolation: bailey.IsolationContainer}
			e.Delete(b.Context(), me, create(b, e, spec).ID) // prepares the host's template
			for b.Loop() {
				b.StopTimer()
				if warm > 0 {
					ready(b, e, kind{template: "host", level: bailey.IsolationContainer}, warm)
				}
				b.StartTimer()
				s, err := e.Create(b.Context(), me, spec)
				if err == nil {
					_, err = e.StartExec(b.Context(), me, s.ID, api.ExecSpec{ID: "x", Args: []string{"true"}})
				}
				if err == nil {
					_, err = e.WaitExec(b.Context(), me, s.ID, "x")
				}
				if err != nil || warm > 0 && s.Warm != "hit" {
					b.Fatal(err, s.Warm)
				}
				b.StopTimer()
				if err := e.Delete(b.Context(), me, s.ID); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
