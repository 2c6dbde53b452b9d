package api

import (
	"encoding/json"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// SandboxSpec is what a sandbox is to be. Zero values choose the defaults.
type SandboxSpec struct {
	// IdempotencyKey makes a repeated create give the sandbox of the first.
	// The same key with another spec is a conflict. 1 to 128 bytes.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// Name is a second way to refer to the sandbox; unique among those that
	// exist. Letters, digits, dots, dashes, underscores, at most 63.
	Name string `json:"name,omitempty"`

	// Template, Image and Snapshot say what it starts from, at most one; none is
	// the template "host". Fallback is a template or image (image:REF) to use,
	// and to say so in Sandbox.Notes, when the snapshot is gone.
	Template string `json:"template,omitempty"`
	Image    string `json:"image,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
	Fallback string `json:"fallback,omitempty"`

	Isolation    bailey.Isolation `json:"isolation,omitzero"` // auto chooses
	MinIsolation bailey.Isolation `json:"min_isolation,omitzero"`

	// Workspace is a folder of the daemon's host that is seen copy-on-write at
	// its own path. Mounts are SOURCE[:TARGET][:ro|rw] as --mount takes them.
	// Both are for callers on the unix socket only.
	Workspace string        `json:"workspace,omitempty"`
	Mounts    []string      `json:"mounts,omitempty"`
	Volumes   []VolumeMount `json:"volumes,omitempty"`

	Env     map[string]string `json:"env,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
	User    string            `json:"user,omitempty"` // uid[:gid], inside; names of the root are resolved there
	Limits  bailey.Limits     `json:"limits,omitzero"`

	// Timeout ends its life, default 1h; it is remembered and counts anew from a
	// resume. OnTimeout is what then happens.
	Timeout   Lifetime `json:"timeout,omitzero"`
	OnTimeout Action   `json:"on_timeout,omitempty"` // default kill
	// Idle is how long nothing may have happened before OnIdle; default never.
	Idle   Lifetime `json:"idle,omitzero"`
	OnIdle Action   `json:"on_idle,omitempty"` // default pause

	Policy   json.RawMessage `json:"policy,omitempty"` // a policy document, as an object or as text
	Allow    []string        `json:"allow,omitempty"`
	Profiles []string        `json:"profiles,omitempty"`
	Secrets  []string        `json:"secrets,omitempty"` // NAME@HOST

	Labels map[string]string `json:"labels,omitempty"`
	// Lease binds the sandbox to its owner: unless it is renewed within TTL the
	// sandbox ends as Lease.Action says.
	Lease *Lease `json:"lease,omitempty"`
	// CheckpointEach makes a checkpoint before each exec.
	CheckpointEach bool `json:"checkpoint_each,omitempty"`
	// Restart starts it anew from its files when it was lost; the next exec then
	// fails with sandbox_restarted until the caller accepts the new generation.
	Restart bool `json:"restart,omitempty"`
	// Queue says how long to wait in the queue when quotas are used up; 0 is not
	// at all: the refusal then has place and ETA.
	Queue Duration `json:"queue,omitempty"`
}

// VolumeMount shows a volume inside.
type VolumeMount struct {
	Volume   string `json:"volume"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Lease is an owner's sign of life.
type Lease struct {
	TTL    Duration `json:"ttl"`
	Action Action   `json:"action,omitempty"` // default kill
}

// Action is what happens to a sandbox by itself.
type Action string

// The actions.
const (
	ActionPause Action = "pause" // memory kept
	ActionStop  Action = "stop"  // files kept, processes ended: pause --to-disk
	ActionKill  Action = "kill"  // deleted; how it ended is kept
)

// State is where a sandbox stands.
type State string

// The states. Every act is recorded as a state before it is done.
const (
	StateQueued   State = "queued"   // quotas are used up; Queue tells the place
	StateCreating State = "creating" // being made
	StateRunning  State = "running"
	StatePausing  State = "pausing"
	StatePaused   State = "paused" // processes are frozen in memory
	StateStopping State = "stopping"
	StateStopped  State = "stopped"  // files only; resume starts it anew
	StateResuming State = "resuming" // from paused or stopped
	StateLost     State = "lost"     // it died under its owner; files remain until it is deleted
	StateFailed   State = "failed"   // it could not be made
	StateDeleting State = "deleting"
	StateEnded    State = "ended" // gone; what it was and how it ended is kept a while
)

// Sandbox is what is known about a sandbox.
type Sandbox struct {
	ID         string `json:"id"`
	Name       string `json:"name,omitempty"`
	State      State  `json:"state"`
	Generation int64  `json:"generation"` // counts the times it was started anew
	Owner      string `json:"owner"`      // the key, or uid:N

	Isolation       bailey.Isolation  `json:"isolation"`
	IsolationReason string            `json:"isolation_reason,omitempty"`
	Template        string            `json:"template,omitempty"`
	Image           string            `json:"image,omitempty"`  // with digest
	Parent          string            `json:"parent,omitempty"` // snapshot that it started from
	Lineage         string            `json:"lineage"`
	Workspace       string            `json:"workspace,omitempty"`
	Workdir         string            `json:"workdir"`
	Env             map[string]string `json:"env,omitempty"` // as asked for; no secrets are in it
	Limits          bailey.Limits     `json:"limits,omitzero"`
	Labels          map[string]string `json:"labels,omitempty"`
	Mounts          []string          `json:"mounts,omitempty"`
	Volumes         []VolumeMount     `json:"volumes,omitempty"`
	Session         string            `json:"session,omitempty"`

	Created time.Time  `json:"created"`
	Started *time.Time `json:"started,omitempty"` // this generation
	Expires *time.Time `json:"expires,omitempty"` // nil: never
	Ended   *time.Time `json:"ended,omitempty"`
	Timeout Lifetime   `json:"timeout,omitzero"`
	Idle    Lifetime   `json:"idle,omitzero"`
	// IdleSince is when it was last busy; nil while it is.
	IdleSince *time.Time `json:"idle_since,omitempty"`
	// WhyAwake names all that keeps it from being idle: exec:ID, cpu, bytes,
	// question (one waits for a person), hold:ID.
	WhyAwake []string    `json:"why_awake,omitempty"`
	End      *bailey.End `json:"why_ended,omitempty"`
	Lease    *LeaseState `json:"lease,omitempty"`

	Policy  string        `json:"policy,omitempty"` // digest
	Egress  string        `json:"egress,omitempty"`
	Ports   []Port        `json:"ports,omitempty"`
	Queue   *QueuePlace   `json:"queue,omitempty"`
	Warm    string        `json:"warm,omitempty"` // hit, or why not
	Error   *bailey.Error `json:"error,omitempty"`
	Notes   []string      `json:"notes,omitempty"`
	Receipt *Receipt      `json:"receipt,omitempty"` // of its last pause, stop, resume, fork or restore
}

// LeaseState is a lease as it stands.
type LeaseState struct {
	Lease
	Until time.Time `json:"until"`
}

// QueuePlace is a place in the queue.
type QueuePlace struct {
	Place int       `json:"place"` // from 1
	ETA   *Duration `json:"eta,omitempty"`
	Why   string    `json:"why"`
}

// SandboxQuery selects sandboxes.
type SandboxQuery struct {
	States []State           `json:"states,omitempty"` // none: all but ended
	Labels map[string]string `json:"labels,omitempty"` // all of them
	Limit  int               `json:"limit,omitempty"`  // 1 to 1000, default 100
	After  string            `json:"after,omitempty"`  // from the page before
}

// Receipt tells what a pause, resume, snapshot, fork or restore kept.
type Receipt struct {
	Act  string    `json:"act"`
	Time time.Time `json:"time"`
	// Kept and Lost are what was and was not kept: files, memory, processes, names …
	Kept []string `json:"kept"`
	Lost []string `json:"lost,omitempty"`
	// Method is how files were captured: sealed, reflink, subvolume or copied; or how
	// processes were paused: frozen or stopped by signals.
	Method   string `json:"method,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
	// Hash is the content's: of all layers, in their canonical form. It may come
	// later than the receipt; HashPending says so.
	Hash        string   `json:"hash,omitempty"`
	HashPending bool     `json:"hash_pending,omitempty"`
	Verified    bool     `json:"verified,omitempty"` // the content was compared with the hash
	Bytes       int64    `json:"bytes,omitempty"`    // captured
	Files       int64    `json:"files,omitempty"`
	Took        Duration `json:"took"`
	Notes       []string `json:"notes,omitempty"`
}

// PauseRequest says how to pause.
type PauseRequest struct {
	// ToDisk keeps nothing in the host's memory: files are kept, and what the processes
	// were doing where the level can put it on disk. The receipt says whether it did.
	ToDisk bool `json:"to_disk,omitempty"`
	// FilesOnly, with ToDisk, ends the processes. Of a sandbox that is stopped it drops the
	// memory that was kept, so that it starts from its files.
	FilesOnly bool `json:"files_only,omitempty"`
}

// PromoteRequest asks for a stronger isolation level.
type PromoteRequest struct {
	Isolation bailey.Isolation `json:"isolation"`
}

// ExtendRequest changes how long a sandbox lives, from now on.
type ExtendRequest struct {
	Timeout Lifetime `json:"timeout,omitzero"`
	Idle    Lifetime `json:"idle,omitzero"`
}

// Hold keeps a sandbox awake until it is released or Until has come.
type Hold struct {
	ID    string    `json:"id"`
	Why   string    `json:"why,omitempty"`
	Until time.Time `json:"until"`
}

// HoldRequest asks for a Hold.
type HoldRequest struct {
	ID  string   `json:"id,omitempty"` // chosen by the caller, or made
	Why string   `json:"why,omitempty"`
	For Duration `json:"for"` // more than 0
}

// Stats is what a sandbox uses now. What the host does not count is -1.
type Stats struct {
	Memory     int64    `json:"memory"`
	MemoryPeak int64    `json:"memory_peak"`
	Pids       int64    `json:"pids"`
	CPU        Duration `json:"cpu"`
	Disk       int64    `json:"disk"` // bytes written since what it started from
	Sent       int64    `json:"sent"` // by its way out
	Received   int64    `json:"received"`
	// IdleBilled is how long it was kept while it was idle.
	IdleBilled Duration `json:"idle_billed"`
}

// Port is a port that is reachable from outside.
type Port struct {
	Port    int    `json:"port"`
	URL     string `json:"url"` // of HTTP, https://PORT-ID.DOMAIN; with tcp it is tcp://HOST:PORT
	Private bool   `json:"private"`
	// Token lets a request to a private port in, as the header Bailey-Port-Token; it
	// is only in the answer to its making.
	Token string `json:"token,omitempty"`
}

// PortRequest makes a port reachable from outside. Of one that is so already it
// changes how, and makes the token and links from before worthless.
type PortRequest struct {
	Port   int  `json:"port"`
	Public bool `json:"public,omitempty"` // for everybody, without a token
	TCP    bool `json:"tcp,omitempty"`    // as a port of the daemon's host; public only
}

// PortList are the ports of a sandbox that are reachable from outside.
type PortList struct {
	Ports []Port `json:"ports"`
}

// PortLinkRequest asks for a link to a private port.
type PortLinkRequest struct {
	For Duration `json:"for"` // more than 0, at most 30 days
}

// PortLink lets whoever has it in until then, or until the port is no longer
// reachable or was made so anew.
type PortLink struct {
	URL   string    `json:"url"`
	Until time.Time `json:"until"`
}
