//go:build linux

package cgroup

import (
	"strconv"
	"strings"
	"time"
)

// Stats is what a group has used and run into. A count that the host does not
// keep is -1.
type Stats struct {
	Memory     int64 // bytes now
	MemoryPeak int64 // bytes at most so far
	MemoryHits int64 // times the memory limit was reached and room had to be made; on version 1 perhaps only that it was
	OOMs       int64 // times no room could be made; version 2 only
	OOMKills   int64 // processes killed for that

	Pids     int64 // tasks now
	PidsPeak int64
	PidsHits int64 // forks refused by the limit

	CPU        time.Duration // processor time used
	Throttles  int64         // periods in which the group had to wait
	ThrottledT time.Duration // the time it waited, summed over processors

	IORead, IOWrite int64 // bytes from and to block devices
}

// Stats reads the group's counters.
func (g *Group) Stats() Stats {
	s := Stats{
		Memory: -1, MemoryPeak: -1, MemoryHits: -1, OOMs: -1, OOMKills: -1,
		Pids: -1, PidsPeak: -1, PidsHits: -1, CPU: -1, Throttles: -1, ThrottledT: -1, IORead: -1, IOWrite: -1,
	}
	v2 := g.host.mode == V2
	if dir := g.controllerDir(Memory); dir != "" {
		if v2 {
			s.Memory, s.MemoryPeak = number(dir, "memory.current"), number(dir, "memory.peak")
			events, _ := read(dir, "memory.events")
			s.MemoryHits, s.OOMs, s.OOMKills = field(events, "max"), field(events, "oom"), field(events, "oom_kill")
		} else {
			s.Memory, s.MemoryPeak = number(dir, "memory.usage_in_bytes"), number(dir, "memory.max_usage_in_bytes")
			// With both limits equal it is the one of memory and swap together
			// that refuses. Newer kernels (seen on 6.18) leave both counts at
			// zero; a peak at the limit shows that it has been reached then.
			s.MemoryHits = max(0, number(dir, "memory.failcnt")) + max(0, number(dir, "memory.memsw.failcnt"))
			if s.MemoryHits == 0 && s.MemoryPeak >= number(dir, "memory.limit_in_bytes") {
				s.MemoryHits = 1
			}
			control, _ := read(dir, "memory.oom_control")
			s.OOMKills = field(control, "oom_kill")
		}
	}
	if dir := g.controllerDir(Pids); dir != "" {
		s.Pids, s.PidsPeak = number(dir, "pids.current"), number(dir, "pids.peak")
		events, _ := read(dir, "pids.events")
		s.PidsHits = field(events, "max")
	}
	if g.v2 != "" {
		// Version 2 counts processor time without the controller, too.
		stat, _ := read(g.v2, "cpu.stat")
		s.CPU = microseconds(field(stat, "usage_usec"))
		s.Throttles, s.ThrottledT = field(stat, "nr_throttled"), microseconds(field(stat, "throttled_usec"))
	}
	if dir := g.v1[CPU]; dir != "" {
		stat, _ := read(dir, "cpu.stat")
		s.Throttles, s.ThrottledT = field(stat, "nr_throttled"), time.Duration(field(stat, "throttled_time"))
	}
	if dir := g.controllerDir(IO); dir != "" {
		if v2 {
			text, err := read(dir, "io.stat")
			if err == nil {
				s.IORead, s.IOWrite = ioStat(text)
			}
		} else if text, err := read(dir, "blkio.throttle.io_service_bytes_recursive"); err == nil {
			s.IORead, s.IOWrite = blkioBytes(text)
		}
	}
	return s
}

func microseconds(n int64) time.Duration {
	if n < 0 {
		return -1
	}
	return time.Duration(n) * time.Microsecond
}

// ioStat sums io.stat, which has a line "8:0 rbytes=1 wbytes=2 …" per device.
func ioStat(text string) (r, w int64) {
	for f := range strings.FieldsSeq(text) {
		k, v, _ := strings.Cut(f, "=")
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			continue
		}
		switch k {
		case "rbytes":
			r += n
		case "wbytes":
			w += n
		}
	}
	return r, w
}

// blkioBytes sums the version 1 form, lines "8:0 Read 1", "8:0 Write 2".
func blkioBytes(text string) (r, w int64) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		n, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			continue
		}
		switch f[1] {
		case "Read":
			r += n
		case "Write":
			w += n
		}
	}
	return r, w
}
