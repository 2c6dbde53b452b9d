package main

import (
	"os"
	"runtime/pprof"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench/lifebench"
)

// profile writes this process's processor profile until done is called, if
// lifebench.EnvProfile names a file for it. It is for `bailey bench lifecycle`.
func profile() (done func(), err error) {
	name := os.Getenv(lifebench.EnvProfile)
	if name == "" {
		return func() {}, nil
	}
	os.Unsetenv(lifebench.EnvProfile) // not for what this process starts
	const what = "profile the daemon"
	f, err := os.Create(name)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, bailey.Errorf(bailey.CodeInternal, what, "", "%w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}
