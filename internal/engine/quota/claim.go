package quota

import (
	"fmt"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Claim is what one sandbox takes.
type Claim struct {
	Sandboxes, Running int
	CPUs               float64
	Memory, Disk       int64 // bytes
}

// Of gives what a sandbox takes in a state. Limits are those in force, with the
// defaults in; cpus is how many processors the host has, which a sandbox without a
// limit on them may take.
//
// A paused one gives its processors back, not its memory, which lies there frozen. A
// stopped or lost one has its files only.
func Of(s api.State, l bailey.Limits, cpus float64) Claim {
	if l.CPUs <= 0 {
		l.CPUs = cpus
	}
	switch s {
	case api.StateQueued, api.StateFailed, api.StateEnded:
		return Claim{}
	case api.StateStopped, api.StateLost, api.StateDeleting:
		return Claim{Disk: l.Disk}
	case api.StatePaused:
		return Claim{Sandboxes: 1, Memory: l.Memory, Disk: l.Disk}
	}
	return Claim{Sandboxes: 1, Running: 1, CPUs: l.CPUs, Memory: l.Memory, Disk: l.Disk}
}

func (c Claim) plus(d Claim) Claim {
	return Claim{c.Sandboxes + d.Sandboxes, c.Running + d.Running, c.CPUs + d.CPUs, c.Memory + d.Memory, c.Disk + d.Disk}
}

func (c Claim) minus(d Claim) Claim {
	return Claim{c.Sandboxes - d.Sandboxes, c.Running - d.Running, c.CPUs - d.CPUs, c.Memory - d.Memory, c.Disk - d.Disk}
}

// over names the first bound that is in the way of having more on top of c, "" if
// none is. What more does not ask for is in nobody's way: an owner whose quota was
// made smaller may still wake nothing, but delete and list.
func over(c, more Claim, q api.Quota) string {
	switch t := c.plus(more); {
	case more.Sandboxes > 0 && q.Sandboxes > 0 && t.Sandboxes > q.Sandboxes:
		return fmt.Sprintf("sandboxes %d of %d", c.Sandboxes, q.Sandboxes)
	case more.Running > 0 && q.Running > 0 && t.Running > q.Running:
		return fmt.Sprintf("running %d of %d", c.Running, q.Running)
	case more.CPUs > 0 && q.CPUs > 0 && t.CPUs > q.CPUs+1e-9:
		return fmt.Sprintf("cpus %g of %g, and %g more are asked for", c.CPUs, q.CPUs, more.CPUs)
	case more.Memory > 0 && q.Memory > 0 && t.Memory > q.Memory:
		return fmt.Sprintf("memory %d of %d bytes, and %d more are asked for", c.Memory, q.Memory, more.Memory)
	case more.Disk > 0 && q.Disk > 0 && t.Disk > q.Disk:
		return fmt.Sprintf("disk %d of %d bytes, and %d more are asked for", c.Disk, q.Disk, more.Disk)
	}
	return ""
}

// place writes the queue's answer.
func place(n int, eta time.Duration, known bool, why string) api.QueuePlace {
	p := api.QueuePlace{Place: n, Why: why}
	if known {
		d := api.Duration(eta.Round(time.Second))
		p.ETA = &d
	}
	return p
}
