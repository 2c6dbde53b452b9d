package api

import (
	"encoding/json"

	"github.com/bailey-sandbox/bailey"
)

// Names of HTTP headers and trailers that are Bailey's own.
const (
	// HeaderIdempotencyKey is another place for SandboxSpec.IdempotencyKey.
	HeaderIdempotencyKey = "Idempotency-Key"
	// HeaderSHA256 is a trailer: the hash, in hex, of the body before it. A body
	// without it was cut.
	HeaderSHA256 = "Bailey-Sha256"
	// HeaderError is a trailer: the bailey.Error, as JSON, that ended the body before
	// it.
	HeaderError = "Bailey-Error"
	// HeaderFile is the FileInfo, as JSON, of the file whose content is the body.
	HeaderFile = "Bailey-File"
	// HeaderOffset is the offset of the first byte of an output stream's body: more
	// than was asked for when the bytes before are kept no more.
	HeaderOffset = "Bailey-Offset"
)

// Problem is every answer that tells of a failure (RFC 9457), with the fields of
// bailey.Error.
type Problem struct {
	Type   string `json:"type"` // about:blank: Code says it all
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"` // the error as one line

	Code bailey.Code `json:"code"`
	What string      `json:"what"`
	Why  string      `json:"why"`
	Fix  string      `json:"fix,omitempty"`
	// Generation is the new one, to be accepted, with sandbox_restarted.
	Generation int64 `json:"generation,omitempty"`
	// Limit and How are there when something is too large, too many or too often:
	// what the limit is, and how to stay below it or have it changed.
	Limit int64  `json:"limit,omitempty"`
	How   string `json:"how,omitempty"`
	// RetryAfter is in how many seconds it may be tried again; in the header too.
	RetryAfter int `json:"retry_after,omitempty"`
	// Errors are the single faults of a request, each with its place.
	Errors []Fault `json:"errors,omitempty"`
}

// Err gives the error that the problem tells of.
func (p *Problem) Err() *bailey.Error {
	return &bailey.Error{Code: p.Code, What: p.What, Why: p.Why, Fix: p.Fix, Generation: p.Generation}
}

// Fault is one thing that is wrong with a request.
type Fault struct {
	Place string `json:"place,omitempty"` // such as body.limits.memory
	Why   string `json:"why"`
}

// SandboxList is a page of sandboxes.
type SandboxList struct {
	Sandboxes []Sandbox `json:"sandboxes"`
	Next      string    `json:"next,omitempty"` // for After; empty on the last page
}

// ExecList is a sandbox's execs.
type ExecList struct {
	Execs []Exec `json:"execs"`
}

// SnapshotList is a list of snapshots.
type SnapshotList struct {
	Snapshots []Snapshot `json:"snapshots"`
}

// SessionList is a list of sessions.
type SessionList struct {
	Sessions []Session `json:"sessions"`
}

// TemplateList is a list of templates.
type TemplateList struct {
	Templates []Template `json:"templates"`
}

// ImageList is a list of images.
type ImageList struct {
	Images []Image `json:"images"`
}

// VolumeList is a list of volumes.
type VolumeList struct {
	Volumes []Volume `json:"volumes"`
}

// KeyList is a list of API keys.
type KeyList struct {
	Keys []Key `json:"keys"`
}

// WebhookList is a list of webhooks.
type WebhookList struct {
	Webhooks []Webhook `json:"webhooks"`
}

// OrphanList is what a gc found.
type OrphanList struct {
	Orphans []Orphan `json:"orphans"`
}

// Entry is a line of a long list that is sent as it is found: a file, a change,
// or the error that ended the list.
type Entry struct {
	File   *FileInfo     `json:"file,omitempty"`
	Change *Change       `json:"change,omitempty"`
	Error  *bailey.Error `json:"error,omitempty"`
}

// PolicyRequest puts another policy in force, as the same fields of SandboxSpec do.
type PolicyRequest struct {
	Policy   json.RawMessage `json:"policy,omitempty"`
	Allow    []string        `json:"allow,omitempty"`
	Profiles []string        `json:"profiles,omitempty"`
	Secrets  []string        `json:"secrets,omitempty"`
}

// MountRequest shows a folder of the host or a volume in a sandbox that runs:
// one of the two.
type MountRequest struct {
	Mount  string       `json:"mount,omitempty"` // SOURCE[:TARGET][:ro|rw]
	Volume *VolumeMount `json:"volume,omitempty"`
}

// SignalRequest sends a signal to all processes of an exec.
type SignalRequest struct {
	Signal string `json:"signal"` // such as SIGTERM
}

// MkdirRequest makes a folder and those above it.
type MkdirRequest struct {
	Path string `json:"path"`
	Mode string `json:"mode,omitempty"` // octal, default 0755
}

// MoveRequest renames a file or folder.
type MoveRequest struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// CheckpointRequest makes a checkpoint.
type CheckpointRequest struct {
	Name string `json:"name,omitempty"`
}

// VolumeSpec asks for a volume.
type VolumeSpec struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit,omitempty"` // bytes, 0 none
}

// PullRequest pulls an image.
type PullRequest struct {
	Ref string `json:"ref"`
}

// GCRequest looks for what belongs to nobody.
type GCRequest struct {
	Dry bool `json:"dry,omitempty"` // only tell
}

// KeySpec asks for an API key.
type KeySpec struct {
	Name   string   `json:"name"` // letters, digits, dots, dashes, underscores, at most 63
	Scopes []string `json:"scopes"`
	// Lifetime ends the key; the zero Lifetime is never.
	Lifetime Lifetime `json:"lifetime,omitzero"`
	Quota    Quota    `json:"quota,omitzero"`
	Rate     float64  `json:"rate,omitempty"` // requests a second, 0: the default
}

// WebhookSpec asks to be told of events.
type WebhookSpec struct {
	URL   string   `json:"url"`
	Kinds []string `json:"kinds,omitempty"` // exact, or with a final * for all that begin so; none: all
}

// SocketControl is a text message on an exec's WebSocket, from the client.
// Binary messages are the command's input.
type SocketControl struct {
	EOF    bool    `json:"eof,omitempty"` // closes its input
	Resize *Window `json:"resize,omitempty"`
	Signal string  `json:"signal,omitempty"`
}

// SocketEvent is a text message on an exec's WebSocket, from the server. Binary
// messages are output: one byte 1 for stdout or 2 for stderr, the offset of the
// first byte as 8 bytes with the highest first, and the bytes.
type SocketEvent struct {
	OutputEvent
	// Taken is how many bytes of input of this connection the command's input has
	// taken. What is not taken when a connection breaks may or may not arrive.
	Taken int64 `json:"taken,omitempty"`
}

// WatchLine is a line of a watch: first Ready, then events, at last perhaps an error.
type WatchLine struct {
	Ready bool          `json:"ready,omitempty"` // from here on nothing is missed
	Event *WatchEvent   `json:"event,omitempty"`
	Error *bailey.Error `json:"error,omitempty"`
}

// EventLine is a line of a stream of events: one of a session or of anything, or
// how the stream ended.
type EventLine struct {
	Event   *Event        `json:"event,omitempty"`
	Session *SessionEvent `json:"session_event,omitempty"`
	End     bool          `json:"end,omitempty"` // there is no more
	Error   *bailey.Error `json:"error,omitempty"`
}
