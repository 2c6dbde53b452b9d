package gatebench

import (
	"context"
	"slices"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// The goals, as ratios and times.
const (
	goalMitm    = 5.0 // of its requests a second, when TLS is terminated
	goalReverse = 0.3
	goalAdded   = 0.3 // milliseconds that the median of a request takes more
)

// samples are one subject's, by round.
type samples struct {
	rates    []float64
	medians  []time.Duration
	requests []time.Duration // of all rounds
}

// request gives the measure of one kind of request.
func request(w work) func(*bench, context.Context) (Measure, error) {
	return func(b *bench, ctx context.Context) (m Measure, err error) {
		m = Measure{What: w.what + ": requests a second of many clients, and how long one takes of a single client"}
		subjects, err := b.subjects(w, nameDirect, nameGate, nameReverse, nameMitm)
		if err != nil {
			return m, err
		}
		m.missing(b.missing[nameMitm])
		took := map[string]*samples{}
		for _, s := range subjects {
			took[s.name] = &samples{}
			defer s.close()
		}
		if err := b.turns(ctx, w.what, b.opt.Rounds, subjects, func(s *subject, round int) error {
			r, err := rate(ctx, b.opt.Workers, b.opt.Slot, s.one)
			if err != nil {
				return err
			}
			l, err := latency(ctx, b.opt.Slot, s.one)
			if err != nil {
				return err
			}
			if round >= 0 {
				t := took[s.name]
				t.rates = append(t.rates, r)
				t.medians = append(t.medians, result.Summarise(l).Median)
				t.requests = append(t.requests, l...)
			}
			return nil
		}); err != nil {
			return m, err
		}
		direct := took[nameDirect]
		for _, s := range subjects {
			if s.failed != nil {
				m.missing(&result.Missing{Name: s.name, Why: s.why()})
				delete(took, s.name)
				continue
			}
			t := took[s.name]
			out := Subject{Name: s.name, Features: s.features, Requests: summarise(t.rates), Latency: latencies(t.requests)}
			if s.name != nameDirect {
				out.Added = &Added{
					Median: time.Duration(median(differences(t.medians, direct.medians))),
					P99:    out.Latency.P99 - latencies(direct.requests).P99,
				}
			}
			m.Subjects = append(m.Subjects, out)
		}
		ours := took[nameGate]
		if t := took[nameMitm]; t != nil {
			goal := goalMitm
			if w.scheme == "http" {
				goal = 0
			}
			m.Targets = append(m.Targets, result.AtLeast("requests a second, bailey gate / mitmproxy", median(ratios(ours.rates, t.rates)), goal))
		}
		m.Targets = append(m.Targets,
			result.AtLeast("requests a second, bailey gate / ReverseProxy", median(ratios(ours.rates, took[nameReverse].rates)), goalReverse),
			result.AtMost("added median latency of bailey gate, ms", median(differences(ours.medians, direct.medians))/1e6, goalAdded))
		return m, nil
	}
}

// differences and ratios compare what was measured in the same round.
func differences(a, b []time.Duration) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = float64(a[i] - b[i])
	}
	return out
}

func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}
