package values

import (
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "4096": 4096, "1k": 1024, "64M": 64 << 20, "1.5G": 3 << 29, "2GiB": 2 << 30, "1tb": 1 << 40, " 5m ": 5 << 20,
		"": 0, "0": 0, "-1": 0, "x": 0, "1X": 0, "1e30": 0, "NaN": 0, "inf": 0, "M": 0, "0.1": 0,
	} {
		got, err := ParseBytes(text)
		if got != want || (err != nil) != (want == 0) || err != nil && bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "5": 5 * time.Second, "0.5": 500 * time.Millisecond,
		"0": 0, "-1s": 0, "": 0, "soon": 0, "1e300": 0,
	} {
		var d time.Duration
		err := Duration{&d}.Set(text)
		if d != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %v, %v; want %v", text, d, err, want)
		}
	}
}
