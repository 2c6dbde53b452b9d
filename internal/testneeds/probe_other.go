//go:build !linux

package testneeds

var probes = map[Feature]probe{Processors: anyProcessor, AMD64: amd64}

func landlockVersion() int { return 0 }
