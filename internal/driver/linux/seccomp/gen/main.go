//go:build linux

// Command gen writes the tables of package seccomp into the current folder. It
// is run by go generate.
package main

import (
	"fmt"
	"os"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/seccomp/internal/profile"
)

func main() {
	for _, arch := range profile.Arches {
		text, err := profile.Generate(arch)
		if err == nil {
			err = os.WriteFile(profile.FileName(arch), text, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}
