package engine

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/engine/life"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// record is all that is known about one sandbox: a row of the database, in JSON.
//
// A record that box.record has given is never changed, nor is anything that it
// leads to: transition and update make the next one of a copy, in which maps and
// slices are replaced and not written to.
//
// Each part of the engine may have a field of its own here, with omitempty.
type record struct {
	// Sandbox is what is told. State is where it stands, or, while an act goes on,
	// which act it is.
	Sandbox api.Sandbox     `json:"sandbox"`
	Spec    api.SandboxSpec `json:"spec"` // as it was asked for

	Rootfs *rootfs.Root `json:"rootfs,omitempty"` // at the container level
	// Digest names the image that Rootfs is of; the image's store keeps it for as
	// long as a record that has not ended names it.
	Digest string        `json:"digest,omitempty"`
	Plan   []folder.Root `json:"plan,omitempty"`  // folders of the host that are seen copy-on-write
	Roots  []root        `json:"roots,omitempty"` // every writable place
	UID    int           `json:"uid"`             // of commands, inside
	GID    int           `json:"gid"`
	// Seeds are the generated files that were written into roots, with a digest of
	// each: what a sandbox has made of one since is not written over.
	Seeds map[string]string `json:"seeds,omitempty"`
	// Hostname and MachineID are the sandbox's own: a fork has others.
	Hostname  string `json:"hostname"`
	MachineID string `json:"machine_id"`
	// Disk is the size in bytes of the file system that the roots lie on, 0 for
	// the data folder's.
	Disk int64 `json:"disk,omitempty"`

	// Env and Workdir are what commands get that say nothing else. They are found
	// out at the start of a generation.
	Env     []string `json:"env,omitempty"`
	Workdir string   `json:"workdir,omitempty"`

	// User is who commands run as that say nothing else, nil for bailey-init's own;
	// Account is who that is.
	User    *guest.User `json:"user,omitempty"`
	Account driver.User `json:"account"`

	// Driver finds the generation that runs again; nil when none does.
	Driver *driver.Record `json:"driver,omitempty"`
	// Starts counts generations, those too that nobody notices (see rearrange).
	Starts int64 `json:"starts"`
	// Act is what is being done to the roots, for a start after a crash; see
	// rearrange.
	Act *act `json:"act,omitempty"`
	// From is the state that an act began in: what it is taken back to.
	From api.State `json:"from,omitempty"`
	// At is the checkpoint that the last undo went to, and Rewound when.
	At      string    `json:"at,omitempty"`
	Rewound time.Time `json:"rewound,omitzero"`
	// Unaccepted: it was started anew after a loss and nobody has accepted the
	// new generation yet.
	Unaccepted bool `json:"unaccepted,omitempty"`
	// Life is when what happens to it by itself.
	Life life.Record `json:"life,omitzero"`
	// Mounting is a mount that is being added; see AddMount.
	Mounting *mounting `json:"mounting,omitempty"`
	// Held is what its policy says beside what may be reached.
	Held *held `json:"held,omitempty"`
	// Ports are reachable from outside; see Expose.
	Ports []exposed `json:"ports,omitempty"`
	// Memory is what a stopped sandbox goes on from; without it, it starts from its
	// files. MemoryIn is the folder of what the generation that runs has gone on from,
	// which it has open.
	Memory   *keptMemory `json:"memory,omitempty"`
	MemoryIn string      `json:"memory_in,omitempty"`
	// Way is what the way out has to find again.
	Way json.RawMessage `json:"way,omitempty"`
}

// act is something that is being done to the roots.
type act struct {
	Kind string          `json:"kind"` // who goes on with it or takes it back: see hooks.acts
	Data json.RawMessage `json:"data,omitempty"`
}

// root is one writable place of a sandbox: an overlay whose writes end in
// DIR/upper, DIR being the folder roots/N of the sandbox.
type root struct {
	N      int    `json:"n"`
	Target string `json:"target"` // inside; "/" is the base
	// Ground are folders of the host, lowest first, that are no layers of
	// snapshots: of an image, of the host template, a workspace.
	Ground  []string `json:"ground"`
	HostIDs bool     `json:"host_ids,omitempty"`
	// Chain is the highest sealed layer between ground and upper, by its id in
	// package layers; "" for none.
	Chain string `json:"chain,omitempty"`
	// Base is what Chain was when the sandbox was made.
	Base string `json:"base,omitempty"`
	// Fresh: nothing was written over the chain yet, so that the folder upper need
	// not be there.
	Fresh bool `json:"fresh,omitempty"`
}

// copyOf is what a change is made to.
func (r *record) copyOf() *record {
	c := *r
	c.Roots = slices.Clone(r.Roots)
	c.Sandbox.Notes = slices.Clone(r.Sandbox.Notes)
	c.Seeds = maps.Clone(r.Seeds)
	return &c
}

// inFull tells an end with what is known of the reason.
func inFull(end bailey.End) string {
	if end.Detail == "" {
		return end.String()
	}
	return end.String() + ": " + end.Detail
}

// end says how it ended, or a plain end where nothing is known.
func (r *record) end() bailey.End {
	if r.Sandbox.End != nil {
		return *r.Sandbox.End
	}
	return bailey.End{Reason: bailey.EndUser}
}
