//go:build !linux

package doctor

import (
	"os"
	"os/exec"
)

// Host gives the probes that examine this machine for its caller. Sandbox is
// left for who has a driver.
func Host(version, baileyHome string) Probes {
	p := Probes{Version: version, UID: os.Geteuid(), User: os.Getenv("USER"), BaileyHome: baileyHome, Getenv: os.Getenv, LookPath: exec.LookPath}
	if exe, err := os.Executable(); err == nil {
		p.Executable = exe
	}
	return p
}

// hasXattr is asked on Linux only.
func hasXattr(string, string) bool { return false }
