package run

import (
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/hostview"
)

// Hold holds a request to what a policy says beside what may be reached; ws is
// the real path of the workspace. What asks for more than the policy allows is
// refused, and so is what this version cannot hold to. The level is the
// caller's to choose: min is the weakest that will do.
func (r *Request) Hold(s control.Session, ws string) (min bailey.Isolation, err error) {
	const what = "hold the run to its policy"
	if s.MinLevel != "" {
		if min, err = bailey.ParseIsolation(s.MinLevel); err != nil {
			return 0, err
		}
	}
	if len(s.Ports) > 0 {
		return 0, bailey.Errorf(bailey.CodeNotAvailable, what, "leave ports out of the policy", "ports of a sandbox cannot be reached from outside in this version")
	}
	if err := r.boundLimits(s.Limits); err != nil {
		return 0, err
	}
	own := map[string]bool{}
	for _, kv := range r.SetEnv {
		name, _, _ := strings.Cut(kv, "=")
		own[name] = true
	}
	for _, kv := range s.Env {
		if name, _, _ := strings.Cut(kv, "="); !own[name] {
			r.SetEnv = append(r.SetEnv, kv)
		}
	}
	for _, m := range s.Mounts {
		if !path.IsAbs(m.Source) {
			m.Source = path.Join(ws, m.Source)
		}
		r.Mounts = append(r.Mounts, hostview.Mount{Source: m.Source, Target: m.Target, Writable: m.Write})
	}
	return min, r.boundPaths(s, ws)
}

// boundLimits takes the policy's limits. They are the most that may be asked for.
func (r *Request) boundLimits(most bailey.Limits) error {
	bound := func(name string, asked, most float64, set func()) error {
		switch {
		case most == 0:
		case asked == 0:
			set()
		case asked > most:
			return bailey.Errorf(bailey.CodeUsage, "set the limit "+name, "lower it, or change the policy", "the policy allows less")
		}
		return nil
	}
	l := &r.Limits
	for _, b := range []error{
		bound("cpus", l.CPUs, most.CPUs, func() { l.CPUs = most.CPUs }),
		bound("memory", float64(l.Memory), float64(most.Memory), func() { l.Memory = most.Memory }),
		bound("pids", float64(l.Pids), float64(most.Pids), func() { l.Pids = most.Pids }),
		bound("disk", float64(l.Disk), float64(most.Disk), func() { l.Disk = most.Disk }),
		bound("io", float64(l.IO), float64(most.IO), func() { l.IO = most.IO }),
		bound("output", float64(l.Output), float64(most.Output), func() { l.Output = most.Output }),
		bound("timeout", float64(l.Timeout), float64(most.Timeout), func() { l.Timeout = most.Timeout }),
	} {
		if b != nil {
			return b
		}
	}
	return nil
}

// boundPaths shows what the policy allows beside the workspace, and hides or
// keeps what it denies.
func (r *Request) boundPaths(s control.Session, ws string) error {
	below := func(p, dir string) bool { return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/") }
	for _, list := range []struct {
		paths, deny []string
		write       bool
	}{{s.AllowWrite, slices.Concat(s.DenyRead, s.DenyWrite), true}, {s.AllowRead, s.DenyRead, false}} {
		for _, p := range list.paths {
			for _, d := range list.deny {
				if below(p, d) && p != d {
					return bailey.Errorf(bailey.CodeNotAvailable, "show "+p, "deny what lies beside it instead",
						"the policy denies %s above it, and a part of what is denied cannot be shown at this level", d)
				}
			}
			if slices.Contains(list.deny, p) || below(p, ws) {
				continue // denied, or seen already: what is written there is reviewed
			}
			if list.write || !slices.Contains(s.AllowWrite, p) {
				r.Mounts = append(r.Mounts, hostview.Mount{Source: p, Target: p, Writable: list.write})
			}
		}
	}
	r.DenyRead, r.DenyWrite = s.DenyRead, s.DenyWrite
	return nil
}
