package main

import (
	"os"
	"testing"
)

// TestMain lets the suite find the probes in the test binary, as it finds them
// in the program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}
