package linux

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// BenchmarkIdle makes many sandboxes, speaks to each, freezes them and tells what
// each costs: memory of its own process that nobody shares, memory of this process,
// and what the whole machine has less, which is the kernel's share too.
func BenchmarkIdle(b *testing.B) {
	const count = 100
	for b.Loop() {
		y := newYard(b, bailey.IsolationContainer)
		y.Outlet = true
		d := y.driver()
		before, own := available(b), private(b, os.Getpid())
		total := 0
		for i := range count {
			spec := y.spec()
			spec.ID += strconv.Itoa(i)
			layer := filepath.Join(y.Dir, "layers", strconv.Itoa(i))
			for _, name := range []string{"upper", "work"} {
				os.MkdirAll(filepath.Join(layer, name), 0o755)
			}
			spec.Root.Base.Layer = layer
			spec.Root.Places = programPlaces()
			in, err := d.Create(context.Background(), spec)
			if err != nil {
				b.Fatal(err)
			}
			defer in.Destroy(context.Background())
			c := speak(b, in)
			if _, err := c.Run(context.Background(), guest.ExecSpec{ID: "x", Argv: []string{"/bin/true"}}, nil, 100); err != nil {
				b.Fatal(err)
			}
			in.Pause(context.Background())
			total += private(b, in.Pid())
		}
		b.ReportMetric(float64(total)/count, "init-KiB")
		b.ReportMetric(float64(private(b, os.Getpid())-own)/count, "own-KiB")
		b.ReportMetric(float64(before-available(b))/count, "machine-KiB")
	}
}

// private gives what a process has for itself, in KiB.
func private(b *testing.B, pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Skip(err)
	}
	return field(text, "Private_Dirty:") + field(text, "Private_Clean:")
}

func available(b *testing.B) int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	return field(text, "MemAvailable:")
}

func field(text []byte, name string) int {
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == name {
			n, _ := strconv.Atoi(string(f[1]))
			return n
		}
	}
	return 0
}
