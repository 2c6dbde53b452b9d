package cli

import (
	"fmt"
	"runtime/debug"
)

// Version is set by release builds.
var Version = ""

func versionCommand(inv *invocation) (int, error) {
	if _, err := inv.parse(); err != nil {
		return 0, err
	}
	v := Version
	if v == "" {
		v = "development"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
			v = info.Main.Version
		}
	}
	fmt.Fprintln(inv.stdout, "bailey", v)
	return 0, nil
}
