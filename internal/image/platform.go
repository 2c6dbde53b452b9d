package image

import (
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

type platform = v1.Platform

// thisMachine is the platform that images are chosen for: sandboxes run on
// Linux, on this program's own architecture.
func thisMachine() platform {
	return platform{OS: "linux", Architecture: runtime.GOARCH, Variant: map[string]string{"arm64": "v8", "arm": "v7"}[runtime.GOARCH]}
}

// suits says how well an image for have runs on want: 0 not at all, more is
// better. The variants are those of image-spec (image-index.md): an arm v7
// machine runs v6 and v5 too; a variant of amd64 names a minimum that this
// program cannot check, so the plain one is preferred.
func suits(want, have platform) int {
	if have.OS != want.OS || have.Architecture != want.Architecture {
		return 0
	}
	switch {
	case have.Variant == want.Variant:
		return 10
	case have.Variant == "" && want.Architecture != "arm":
		return 9
	case want.Architecture == "amd64":
		return map[string]int{"v1": 8, "v2": 7, "v3": 2, "v4": 1}[have.Variant]
	case want.Architecture == "arm" && have.Variant < want.Variant:
		return map[string]int{"v6": 8, "v5": 7, "": 6}[have.Variant]
	}
	return 0
}
