package main

import (
	"fmt"
	"os"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// Exit codes of `testrun probe`.
const (
	probeMet    = 0
	probeUnmet  = 3
	probeFailed = 2
)

func runProbe(args []string) int {
	if len(args) != 2 {
		return probeFailed
	}
	ok := false
	switch args[0] {
	case "tool":
		ok = has(args[1])
	case "host":
		var detail string
		if ok, detail = testneeds.Feature(args[1]).Probe(); !ok {
			fmt.Fprintln(os.Stderr, detail)
		}
	default:
		return probeFailed
	}
	if ok {
		return probeMet
	}
	return probeUnmet
}
