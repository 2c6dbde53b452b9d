package seatbelt

import (
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// Clone is a folder that has to be copied before the command starts.
type Clone struct{ From, To string }

// Plan is a driver.Spec in terms of what macOS can do.
type Plan struct {
	Profile Profile
	Clones  []Clone
	Workdir string   // on the host
	Env     []string // with places that moved rewritten
	Command []string
}

const what = "build the sandbox"

// Translate works out how a sandbox is built on macOS, and refuses what cannot
// be: a root file system of its own, files that would have to appear at
// another path, limits that macOS cannot enforce for a tree of processes. It
// reads nothing; paths of the host must be resolved.
func Translate(spec driver.Spec) (Plan, error) {
	var p Plan
	switch {
	case spec.Level != bailey.IsolationProcess:
		return p, bailey.Errorf(bailey.CodeIsolationUnavailable, what, "use --isolation process", "macOS has no %s level of its own", spec.Level)
	case spec.Root.Base != nil:
		return p, bailey.Errorf(bailey.CodeNotAvailable, what, "run it over the host's own tools", "macOS cannot give a command another root file system")
	case spec.Mount != nil:
		return p, bailey.Errorf(bailey.CodeNotAvailable, what, "", "macOS has no detached file systems")
	case spec.Outlet:
		return p, bailey.Errorf(bailey.CodeNotAvailable, what, "run it without a network, or on Linux", "macOS has no network namespaces, so a way to the gate alone cannot be given")
	case len(spec.Entry.Command) == 0:
		return p, bailey.Errorf(bailey.CodeNotAvailable, what, "run one command at a time", "sandboxes that stay need processes of their own")
	}
	if err := limits(spec.Limits); err != nil {
		return p, err
	}
	moved := map[string]string{}
	for _, place := range spec.Root.Places {
		if err := p.place(place, moved); err != nil {
			return p, err
		}
	}
	for _, entry := range spec.Env {
		name, value, _ := strings.Cut(entry, "=")
		list := strings.Split(value, ":")
		for i := range list {
			list[i] = move(list[i], moved)
		}
		p.Env = append(p.Env, name+"="+strings.Join(list, ":"))
	}
	p.Workdir = move(spec.Workdir, moved)
	p.Command = slices.Clone(spec.Entry.Command)
	return p, nil
}

// limits refuses what was asked for and cannot be enforced. Timeout and output
// are the caller's to enforce, on every level.
func limits(l bailey.Limits) error {
	for _, limit := range []struct {
		name  string
		asked bool
	}{{"cpus", l.CPUs != 0}, {"memory", l.Memory != 0}, {"pids", l.Pids != 0}, {"disk", l.Disk != 0}, {"io", l.IO != 0}} {
		if limit.asked {
			return bailey.Errorf(bailey.CodeLimitUnavailable, what, "leave --"+limit.name+" out, or use a level with a kernel of its own",
				"macOS cannot limit %s for a command and all that it starts", limit.name)
		}
	}
	return nil
}

// place adds one place of the root, in order: a later one may change what an
// earlier one said.
func (p *Plan) place(place driver.Place, moved map[string]string) error {
	switch place.Kind {
	case driver.Bind:
		if place.Source != place.Target {
			moved[place.Target] = place.Source
		}
		if !place.ReadOnly {
			p.Profile.Write = append(p.Profile.Write, place.Source)
			return nil
		}
		for _, w := range p.Profile.Write {
			if within(place.Source, w) {
				p.Profile.Protect = append(p.Profile.Protect, place.Source)
				return nil
			}
		}
		p.Profile.Read = append(p.Profile.Read, place.Source)
	case driver.Scratch:
		moved[place.Target] = place.Source
		if place.ReadOnly {
			p.Profile.Read = append(p.Profile.Read, place.Source)
		} else {
			p.Profile.Write = append(p.Profile.Write, place.Source)
		}
	case driver.CoW:
		o := place.Overlay
		if o == nil || len(o.Lower) != 1 || o.Layer == "" {
			return bailey.Errorf(bailey.CodeNotAvailable, what, "", "macOS can copy one folder to a layer on disk, not stack several")
		}
		clone := Clone{From: o.Lower[0], To: path.Join(o.Layer, "copy")}
		p.Clones = append(p.Clones, clone)
		p.Profile.Write = append(p.Profile.Write, clone.To)
		moved[place.Target] = clone.To
	case driver.Mask:
		p.Profile.Deny = append(p.Profile.Deny, move(place.Target, moved))
	case driver.Dir, driver.Symlink, driver.File:
		// Stand-ins for parts of a file system that macOS has already: what is
		// not allowed by another place stays out of reach.
	default:
		return bailey.Errorf(bailey.CodeNotAvailable, what, "", "macOS has no place of kind %d", place.Kind)
	}
	return nil
}

// move gives where a path of the sandbox is on the host: by the longest place
// that moved and contains it.
func move(p string, moved map[string]string) string {
	for at := p; path.IsAbs(at); at = path.Dir(at) {
		if to, ok := moved[at]; ok {
			return to + strings.TrimPrefix(p, at)
		}
		if at == "/" {
			break
		}
	}
	return p
}
