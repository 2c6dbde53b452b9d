//go:build !amd64

package machine

// counterKHz is for another processor's machines, of which there are none here.
func counterKHz() int { return 0 }
