package linux

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/cgroup"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// group is a sandbox's control group and the limits that are in force.
type group struct {
	*cgroup.Group
	entry  cgroup.Entry
	limits bailey.Limits // asked for or by default, and in force
	rlimit bool          // processes are bounded by RLIMIT_NPROC
	// watched is the default memory limit when no control group holds it.
	watched int64
}

// cgroupHost looks at the host's control groups once, at the first sandbox.
func (d *Driver) cgroupHost() *cgroup.Host {
	d.cgroups.Do(func() {
		d.host = cgroup.Detect("/")
		d.host.SetOwner(ownerWord(d.opt.State + d.opt.Part))
	})
	return d.host
}

// ownerWord tells the groups of this data folder from those of another.
func ownerWord(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:8])
}

// newGroup makes the group of a sandbox. What the owner asked for is in force
// or an error; a default is in force where the host can do it.
func (d *Driver) newGroup(spec driver.Spec, id *identity) (*group, error) {
	host := d.cgroupHost()
	want, asked := spec.Limits, spec.Limits
	byDefault := func(have *int64, one bailey.Limits, value int64) {
		if *have == 0 && value > 0 && host.Can(one) == nil {
			*have = value
		}
	}
	memory := spec.Defaults.Memory
	byDefault(&want.Memory, bailey.Limits{Memory: memory}, memory)
	byDefault(&want.Pids, bailey.Limits{Pids: spec.Defaults.Pids}, spec.Defaults.Pids)

	g := &group{}
	ask := want
	if want.Pids == 0 || host.Can(bailey.Limits{Pids: want.Pids}) != nil {
		// RLIMIT_NPROC counts the processes of one user in one user namespace,
		// so it bounds a sandbox that cannot change its user. For the others a
		// default by user is better than none, and no answer to who asked.
		if (id.single(spec.Level) || asked.Pids == 0) && !d.omit[NoRlimits] {
			g.rlimit, ask.Pids = true, 0
			if want.Pids = asked.Pids; want.Pids == 0 {
				want.Pids = spec.Defaults.Pids
			}
		}
	}
	if d.omit[NoCgroup] {
		ask = bailey.Limits{}
	}
	if ask.Memory == 0 && memory > 0 {
		g.watched, want.Memory = memory, memory
	}
	var err error
	if g.Group, err = cgroup.New(host, spec.ID, ask, spec.Disks...); err != nil {
		return nil, err
	}
	g.limits = want
	if g.limits.Disk == 0 {
		g.limits.Disk = spec.Defaults.Disk
	}
	if g.limits.Output == 0 {
		g.limits.Output = spec.Defaults.Output
	}
	if g.entry, err = g.Enter(); err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

// enter gives what the child needs to be in the group from its first instruction.
func (g *group) enter() ([]int, spawn.Options) {
	return g.entry.V1, spawn.Options{Cgroup: g.entry.V2}
}

// judge says what the group's counters tell about an end.
func (g *group) judge(e bailey.End, s cgroup.Stats) bailey.End {
	// What the host does not count is -1.
	e.Usage = bailey.Usage{CPU: max(s.CPU, 0), MemoryPeak: max(s.MemoryPeak, 0), PidsPeak: max(s.PidsPeak, 0)}
	if s.OOMKills > 0 || e.Reason == bailey.EndOOM {
		if e.Reason == bailey.EndSignal && e.Signal == "SIGKILL" || e.Reason == bailey.EndOOM || e.Reason == bailey.EndHostLost {
			e = bailey.End{Reason: bailey.EndOOM, ExitCode: bailey.ExitLimit, Signal: "SIGKILL", Usage: e.Usage}
		} else {
			e.LimitHits = append(e.LimitHits, "memory")
		}
		e.Limit, e.Peak, e.Victim = g.limits.Memory, e.Usage.MemoryPeak, g.Victim()
	}
	if s.PidsHits > 0 {
		e.LimitHits = append(e.LimitHits, "pids")
		if e.Limit == 0 {
			e.Limit, e.Peak = g.limits.Pids, e.Usage.PidsPeak
		}
	}
	return e
}

func (g *group) freeze(ctx context.Context, on bool) error {
	if on {
		return g.Freeze(ctx)
	}
	err := g.Thaw(ctx)
	if bailey.CodeOf(err) == bailey.CodeNotAvailable {
		return nil // what cannot be frozen is not
	}
	return err
}

func (g *group) stats() driver.Stats {
	s := g.Stats()
	d := driver.Stats{Memory: s.Memory, MemoryPeak: s.MemoryPeak, Pids: s.Pids, CPU: s.CPU, MemoryLimit: g.limits.Memory, OOMKills: s.OOMKills}
	if d.OOMKills > 0 {
		d.OOMVictim = g.Victim()
	}
	return d
}

// removeWithin bounds the wait for processes of an ended sandbox to leave the
// group. Pid 1 is gone by then, and the others with it but for their last steps.
const removeWithin = 10 * time.Second

func (g *group) remove() error {
	if g == nil || g.Group == nil {
		return nil
	}
	g.entry.Close()
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	return g.Remove(ctx)
}

// Sweep removes control groups of sandboxes whose owners have died. alive must
// be sure; see cgroup.Sweep.
func (d *Driver) Sweep(ctx context.Context, alive func(id string) bool) ([]string, error) {
	return cgroup.Sweep(ctx, d.cgroupHost(), alive)
}

// Stale names the control groups that Sweep would remove.
func (d *Driver) Stale(alive func(id string) bool) []string {
	return cgroup.Stale(d.cgroupHost(), alive)
}

// HostMemory is the machine's memory in bytes, as the kernel gives it to
// programs, or 0 when it cannot be known. It is read once.
func HostMemory() int64 { return hostMemory() }

var hostMemory = sync.OnceValue(func() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return parseMemTotal(b)
})
