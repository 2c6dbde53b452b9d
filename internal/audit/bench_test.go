package audit

import (
	"slices"
	"testing"
	"time"
)

func act() *Record {
	return &Record{Kind: "http", Session: "s-1", Sandbox: "r-8f3a", Policy: "sha256:0123456789abcdef", Decision: "allow", Reason: "rule", Rule: "2",
		Egress: &Egress{Via: "redirect", Scheme: "https", Host: "api.example.com", Port: 443, Method: "GET", Path: "/v1/models", SNI: "api.example.com",
			ALPN: "h2", Address: "203.0.113.7:443", Steps: []string{"policy=allow:rule", "secret=continue:none"}}}
}

// BenchmarkAppend is one writer that waits for each record.
func BenchmarkAppend(b *testing.B) {
	l := open(b, b.TempDir(), Options{})
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		start := time.Now()
		if err := l.Append(act()); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

// BenchmarkAppendTogether is many goroutines of one process.
func BenchmarkAppendTogether(b *testing.B) {
	l := open(b, b.TempDir(), Options{})
	b.SetParallelism(128)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if err := l.Append(act()); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
