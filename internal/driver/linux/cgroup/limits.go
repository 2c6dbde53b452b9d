//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// cpuPeriod is the time over which processor time is rationed, in microseconds:
// the kernel's own default. The kernel takes no quota below 1000.
const (
	cpuPeriod   = 100_000
	cpuQuotaMin = 1000
)

// ioGapV1 is what version 1 cannot do.
const ioGapV1 = "on cgroup version 1 the io limit holds for reads, direct writes and fsync, not for what the kernel writes back later"

// setting is one limit to be set.
type setting struct {
	controller Controller
	limit      string // as in bailey.Limits, for messages
	value      int64
	devices    []string // of IO, as "major:minor"
}

// Can says whether the limits could be set, without making anything. The error
// is the one that New would give.
func (h *Host) Can(limits bailey.Limits, disks ...string) error {
	_, err := h.plan(limits, disks)
	return err
}

// plan checks the limits and turns them into settings.
func (h *Host) plan(l bailey.Limits, disks []string) ([]setting, error) {
	if l.CPUs < 0 || l.Memory < 0 || l.Pids < 0 || l.IO < 0 || l.CPUs > 1<<20 || l.CPUs != l.CPUs {
		return nil, bailey.Errorf(bailey.CodeUsage, "set limits", "", "a limit is out of range (cpus %v, memory %d, pids %d, io %d)", l.CPUs, l.Memory, l.Pids, l.IO)
	}
	var out []setting
	if l.Memory > 0 {
		page := int64(os.Getpagesize())
		if l.Memory < page {
			return nil, bailey.Errorf(bailey.CodeUsage, "set the memory limit", "", "%d bytes are less than a page", l.Memory)
		}
		out = append(out, setting{controller: Memory, limit: "memory", value: l.Memory / page * page})
	}
	if l.Pids > 0 {
		out = append(out, setting{controller: Pids, limit: "pids", value: l.Pids})
	}
	if l.CPUs > 0 {
		quota := int64(l.CPUs*cpuPeriod + 0.5)
		if quota < cpuQuotaMin {
			return nil, bailey.Errorf(bailey.CodeUsage, "set the cpu limit", "ask for 0.01 or more", "%v processors are less than the kernel can ration", l.CPUs)
		}
		out = append(out, setting{controller: CPU, limit: "cpus", value: quota})
	}
	if l.IO > 0 {
		devices, err := h.devices(disks)
		if err != nil {
			return nil, err
		}
		out = append(out, setting{controller: IO, limit: "io", value: l.IO, devices: devices})
	}
	for _, s := range out {
		if st := h.status[s.controller]; !st.OK {
			return nil, bailey.Errorf(bailey.CodeLimitUnavailable, "set the "+s.limit+" limit", st.Fix, "%s", st.Why)
		}
	}
	return out, nil
}

// apply sets one limit and reads it back.
func (g *Group) apply(s setting) error {
	dir := g.controllerDir(s.controller)
	v2 := g.host.mode == V2
	var err error
	switch s.controller {
	case Memory:
		err = g.applyMemory(dir, v2, s.value)
	case Pids:
		if err = write(dir, "pids.max", itoa(s.value)); err == nil {
			err = confirm(dir, "pids.max", s.value)
		}
	case CPU:
		if v2 {
			want := fmt.Sprintf("%d %d", s.value, cpuPeriod)
			if err = write(dir, "cpu.max", want); err == nil {
				err = confirmText(dir, "cpu.max", want)
			}
		} else {
			// A new group's period is cpuPeriod; that is read back too.
			if err = write(dir, "cpu.cfs_quota_us", itoa(s.value)); err == nil {
				err = confirm(dir, "cpu.cfs_quota_us", s.value)
			}
			if err == nil {
				err = confirm(dir, "cpu.cfs_period_us", cpuPeriod)
			}
		}
	case IO:
		err = g.applyIO(dir, v2, s)
	}
	if err == nil {
		return nil
	}
	fix := ""
	if s.controller == CPU && !v2 {
		fix = "a group above may allow less: ask for fewer processors"
	}
	return bailey.Errorf(bailey.CodeLimitUnavailable, "set the "+s.limit+" limit", fix, "%w", err)
}

// applyMemory bounds memory, and with it swap: all of the limit may be memory,
// none of it swap (version 2), or both together (version 1).
func (g *Group) applyMemory(dir string, v2 bool, limit int64) error {
	maxFile, swapFile, swap := "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", limit
	if v2 {
		maxFile, swapFile, swap = "memory.max", "memory.swap.max", 0
	}
	if err := write(dir, maxFile, itoa(limit)); err != nil {
		return err
	}
	if err := confirm(dir, maxFile, limit); err != nil {
		return err
	}
	if !exists(dir, swapFile) {
		if !swapInUse(g.host.root) {
			return nil
		}
		return fmt.Errorf("swap is on and this kernel does not count it by group (boot with swapaccount=1, or turn swap off)")
	}
	if err := write(dir, swapFile, itoa(swap)); err != nil {
		return err
	}
	return confirm(dir, swapFile, swap)
}

// swapInUse says whether the machine has swap; if that cannot be read, it does.
func swapInUse(root string) bool {
	b, err := os.ReadFile(root + "/proc/swaps")
	return err != nil || strings.Count(strings.TrimSpace(string(b)), "\n") > 0
}

func (g *Group) applyIO(dir string, v2 bool, s setting) error {
	for _, dev := range s.devices {
		if v2 {
			if err := write(dir, "io.max", fmt.Sprintf("%s rbps=%d wbps=%d", dev, s.value, s.value)); err != nil {
				return err
			}
			text, err := read(dir, "io.max")
			if err != nil {
				return err
			}
			if !deviceLine(text, dev, "rbps="+itoa(s.value), "wbps="+itoa(s.value)) {
				return fmt.Errorf("%s/io.max says %q", dir, text)
			}
			continue
		}
		for _, name := range []string{"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"} {
			if err := write(dir, name, dev+" "+itoa(s.value)); err != nil {
				return err
			}
			text, err := read(dir, name)
			if err != nil {
				return err
			}
			if !deviceLine(text, dev, itoa(s.value)) {
				return fmt.Errorf("%s/%s says %q", dir, name, text)
			}
		}
	}
	if !v2 && len(s.devices) > 0 {
		g.notes = append(g.notes, ioGapV1)
	}
	return nil
}

// deviceLine says whether text has a line for dev with all of want.
func deviceLine(text, dev string, want ...string) bool {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != dev {
			continue
		}
		n := 0
		for _, w := range want {
			for _, have := range f[1:] {
				if have == w {
					n++
				}
			}
		}
		if n == len(want) {
			return true
		}
	}
	return false
}

func confirm(dir, name string, want int64) error { return confirmText(dir, name, itoa(want)) }

func confirmText(dir, name, want string) error {
	got, err := read(dir, name)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%s/%s says %q after %q was written (%w)", dir, name, got, want, unix.ERANGE)
	}
	return nil
}
