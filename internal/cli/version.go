package cli

import (
	"fmt"
	"runtime/debug"
)

// Version is set by release builds.
var Version = ""

func versionCommand(inv *invocation) (int, error) {
	if err := inv.alone(); err != nil {
		return 0, err
	}
	fmt.Fprintln(inv.stdout, "bailey", version())
	return 0, nil
}

// version gives the version of a release, or what the build knows of itself.
func version() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "development"
}
