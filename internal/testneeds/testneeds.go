package testneeds

import (
	"os"
	"os/exec"
	"testing"
)

// The first words of every reason; scripts/testrun reads them back.
const (
	PrefixRoot     = "needs root"
	PrefixOrdinary = "needs an ordinary user"
	PrefixTool     = "needs tool "
	PrefixHost     = "needs host "
	PrefixPart     = "part of "
)

// Root skips the test unless it runs as root. why says what takes root, such as
// "mounting".
func Root(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(PrefixRoot + ": " + why)
	}
}

// Ordinary skips the test when it runs as root.
func Ordinary(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip(PrefixOrdinary + ": " + why)
	}
}

// Tool skips the test unless every one of the programs is on PATH. It gives the
// path of the first.
func Tool(t testing.TB, names ...string) string {
	t.Helper()
	first := ""
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(PrefixTool + name)
		}
		if first == "" {
			first = path
		}
	}
	return first
}

// Host skips the test unless the host has the feature.
func Host(t testing.TB, f Feature) {
	t.Helper()
	if ok, detail := f.Probe(); !ok {
		t.Skip(f.Reason(detail))
	}
}

// Lacks skips the test because it met a host without the feature, which detail
// describes: for what shows only when it is tried. The suite fails if the
// feature's probe finds it.
func Lacks(t testing.TB, f Feature, detail string) {
	t.Helper()
	t.Skip(f.Reason(detail))
}

// Part skips a test that does its work only where another test of the same
// package has started it. The suite fails unless that other test has passed.
func Part(t testing.TB, of string) {
	t.Helper()
	t.Skip(PrefixPart + of)
}
