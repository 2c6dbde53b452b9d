package command

import "runtime/debug"

// Release is set by release builds.
var Release = ""

// Version gives the version of a release, or what the build knows of itself.
func Version() string {
	if Release != "" {
		return Release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "development"
}
