//go:build linux

// Command gen writes moby-seccomp.json: moby's default profile in the form of
// an OCI bundle's linux.seccomp, for the capabilities that a container of
// Bailey keeps. It is what crun loads in the benchmark.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func main() {
	caps := []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_SETGID", "CAP_SETUID",
		"CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_KILL", "CAP_SYS_CHROOT",
	}
	p, err := seccomp.GetDefaultProfile(&specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: caps}}})
	if err != nil {
		log.Fatal(err)
	}
	p.Architectures = nil // the native one alone, which is the quickest to load
	b, err := json.Marshal(p)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("moby-seccomp.json", append(b, '\n'), 0o644); err != nil {
		log.Fatal(err)
	}
}
