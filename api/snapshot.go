package api

import "time"

// SnapshotSpec asks for a snapshot.
type SnapshotSpec struct {
	Name   string            `json:"name,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Memory asks for memory too: not_available at the levels without.
	Memory bool `json:"memory,omitempty"`
	// Expires deletes it by itself; the zero Lifetime is never.
	Expires Lifetime `json:"expires,omitzero"`
}

// Snapshot is the frozen state of a sandbox's files.
type Snapshot struct {
	ID         string            `json:"id"`
	Name       string            `json:"name,omitempty"`
	Sandbox    string            `json:"sandbox"`
	Checkpoint bool              `json:"checkpoint,omitempty"` // made on the way
	Exec       string            `json:"exec,omitempty"`       // that it was made before
	Created    time.Time         `json:"created"`
	Expires    *time.Time        `json:"expires,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Hash       string            `json:"hash,omitempty"` // empty until it is known
	Bytes      int64             `json:"bytes"`          // of its own, without what it stands on
	Layers     int               `json:"layers"`
	Refs       int               `json:"refs"`              // sandboxes and snapshots that stand on it
	Deleted    bool              `json:"deleted,omitempty"` // kept for those only
	Receipt    Receipt           `json:"receipt"`
}

// ForkRequest asks for sandboxes that start as this one is now.
type ForkRequest struct {
	Count  int               `json:"count,omitempty"` // default 1, at most 100
	Memory bool              `json:"memory,omitempty"`
	Labels map[string]string `json:"labels,omitempty"` // on top of the parent's
	Name   string            `json:"name,omitempty"`   // with Count 1
}

// Change is one path that differs between two states.
type Change struct {
	Op      string `json:"op"` // added, changed, deleted, mode
	Path    string `json:"path"`
	Size    int64  `json:"size,omitempty"`
	Old     int64  `json:"old_size,omitempty"`
	OldHash string `json:"old_hash,omitempty"`
	NewHash string `json:"new_hash,omitempty"`
}

// UndoRequest takes files back to a checkpoint or snapshot.
type UndoRequest struct {
	To    string `json:"to,omitempty"`    // a checkpoint; default the last
	Steps int    `json:"steps,omitempty"` // or so many checkpoints back
	// Kill ends what runs: files cannot be taken back under live processes.
	Kill bool `json:"kill,omitempty"`
}

// BisectRequest finds the first checkpoint at which a command fails.
type BisectRequest struct {
	Good string   `json:"good"`
	Bad  string   `json:"bad,omitempty"` // default: now
	Args []string `json:"args"`
}

// BisectResult is what was found.
type BisectResult struct {
	First string       `json:"first_bad"`
	Exec  string       `json:"exec,omitempty"` // that ran between
	Tried []BisectStep `json:"tried"`
}

// BisectStep is one trial.
type BisectStep struct {
	Snapshot string `json:"snapshot"`
	ExitCode int    `json:"exit_code"`
}
