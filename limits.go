package bailey

import "time"

// Limits bounds what a sandbox may use. Zero means "not asked": the default
// of the level applies. A limit that is asked for and cannot be enforced by
// the host is an error with code limit_unavailable, never a silent gap.
type Limits struct {
	CPUs    float64       `json:"cpus,omitempty"`    // processors, as in 1.5; no default
	Memory  int64         `json:"memory,omitempty"`  // bytes of memory and swap together
	Pids    int64         `json:"pids,omitempty"`    // processes and threads alive at once
	Disk    int64         `json:"disk,omitempty"`    // bytes the sandbox may write to its own layers
	IO      int64         `json:"io,omitempty"`      // bytes per second to and from block devices, each way
	Output  int64         `json:"output,omitempty"`  // bytes of stdout and stderr together
	Timeout time.Duration `json:"timeout,omitempty"` // wall time of the command; no default
}

// DefaultLimits are the limits of a sandbox whose owner named none. They are
// there so that a mistake inside cannot take the machine down, not to ration:
// Memory is filled in from the host (three quarters of it), the others are
// what large builds stay well below.
var DefaultLimits = Limits{
	Pids:   4096,
	Disk:   16 << 30,
	Output: 1 << 30,
}
