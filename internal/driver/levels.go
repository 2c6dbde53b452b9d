package driver

import (
	"context"

	"github.com/bailey-sandbox/bailey"
)

// Levels is a Driver made of others: of one for each isolation level. A level
// that has none is isolation_unavailable; it never becomes another one.
type Levels map[bailey.Isolation]Driver

var _ Restorer = Levels(nil)

// Probe is [Driver].Probe.
func (l Levels) Probe(ctx context.Context, level bailey.Isolation) Capabilities {
	d, ok := l[level]
	if !ok {
		return Capabilities{Why: "the level " + level.String() + " is not in this version"}
	}
	return d.Probe(ctx, level)
}

// Create is [Driver].Create.
func (l Levels) Create(ctx context.Context, spec Spec) (Instance, error) {
	d, ok := l[spec.Level]
	if !ok {
		return nil, bailey.Errorf(bailey.CodeIsolationUnavailable, "create the sandbox", "choose another level; `bailey doctor` lists what this host can do",
			"the level %s is not in this version", spec.Level)
	}
	return d.Create(ctx, spec)
}

// Adopt is [Adopter].Adopt.
func (l Levels) Adopt(ctx context.Context, spec Spec, r Record, k Kept) (Instance, error) {
	d, ok := l[r.Level].(Adopter)
	if !ok {
		for _, f := range k.Files {
			f.Close()
		}
		return nil, bailey.Errorf(bailey.CodeIsolationUnavailable, "adopt the sandbox "+r.ID, "start the version of Bailey that made it", "nothing here knows sandboxes of the level %s", r.Level)
	}
	return d.Adopt(ctx, spec, r, k)
}

// Restore is [Restorer].Restore. Where a level has none it is not_available.
func (l Levels) Restore(ctx context.Context, spec Spec, m Memory, dir string) (Instance, error) {
	d, ok := l[spec.Level].(Restorer)
	if !ok {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, "go on with the memory of "+m.ID, "start the sandbox from its files", "the level %s keeps no memory in files", spec.Level)
	}
	return d.Restore(ctx, spec, m, dir)
}
