package result

import (
	"testing"
	"time"
)

func TestSummarise(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	for _, tc := range []struct {
		name string
		in   []time.Duration
		want Stats
	}{
		{"nothing", nil, Stats{}},
		{"one", []time.Duration{7}, Stats{N: 1, Min: 7, Median: 7, P95: 7}},
		{"two", []time.Duration{10, 4}, Stats{N: 2, Min: 4, Median: 7, P95: 10}},
		{"odd, out of order", []time.Duration{9, 1, 5}, Stats{N: 3, Min: 1, Median: 5, P95: 9}},
		{"hundred", hundred, Stats{N: 100, Min: 1, Median: 50, P95: 95}},
		{"twenty: the second largest", hundred[80:], Stats{N: 20, Min: 1, Median: 10, P95: 19}},
	} {
		before := append([]time.Duration(nil), tc.in...)
		if got := Summarise(tc.in); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
		for i := range before {
			if tc.in[i] != before[i] {
				t.Fatalf("%s: the samples were changed", tc.name)
			}
		}
	}
}

func TestRatio(t *testing.T) {
	if r := Ratio(3, 2); r != 1.5 {
		t.Error(r)
	}
	if r := Ratio(3, 0); r != 0 {
		t.Error("a ratio to nothing is", r)
	}
}

func TestHuman(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "-", 815 * time.Nanosecond: "1 µs", 999 * time.Microsecond: "999 µs", 1234 * time.Microsecond: "1.23 ms",
		12345 * time.Microsecond: "12.3 ms", 400 * time.Millisecond: "400 ms", 12 * time.Second: "12.0 s",
	} {
		if got := Human(d); got != want {
			t.Errorf("%d ns is %q, want %q", d, got, want)
		}
	}
}
