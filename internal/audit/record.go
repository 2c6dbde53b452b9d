package audit

import "time"

// The kinds of records. http, websocket, stream and name are acts of a sandbox
// and are written by the gate.
const (
	KindEnd        = "end"        // the outcome of the record Of
	KindApproval   = "approval"   // a question that a rule asked, and what came of it
	KindExec       = "exec"       // a command starts
	KindLifecycle  = "lifecycle"  // a sandbox comes or goes
	KindPolicy     = "policy"     // a version of a policy comes into force
	KindFile       = "file"       // changes of a run were applied, reverted or discarded, or files were put into a sandbox
	KindPort       = "port"       // somebody outside connects to a port of a sandbox
	KindCheckpoint = "checkpoint" // the log's own: a signature over all before it
	KindGap        = "gap"        // the log's own: something was cut off, or may be missing
	KindRotate     = "rotate"     // the log's own: the last record of a segment
)

// Kinds are all of them.
var Kinds = []string{"http", "websocket", "stream", "name", KindEnd, KindApproval, KindExec, KindLifecycle, KindPolicy, KindFile, KindPort, KindCheckpoint, KindGap, KindRotate}

// Record is one entry. No field ever holds a secret's value, a query's value
// or a body.
type Record struct {
	Seq      int64     `json:"seq"` // from 1, set by Append as Time, Prev and Hash are
	Time     time.Time `json:"time"`
	Kind     string    `json:"kind"`
	Session  string    `json:"session,omitempty"`
	Sandbox  string    `json:"sandbox,omitempty"`
	Policy   string    `json:"policy,omitempty"` // digest of the version that decided
	Decision string    `json:"decision,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Rule     string    `json:"rule,omitempty"`
	// Of is the Seq of the record whose outcome this is (kind end).
	Of         int64       `json:"of,omitempty"`
	Egress     *Egress     `json:"egress,omitempty"`
	Exec       *Exec       `json:"exec,omitempty"`
	Outcome    *Outcome    `json:"outcome,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Gap        *Gap        `json:"gap,omitempty"`
	// Detail has what else is known, by name: digests, counts, names; no values.
	Detail map[string]string `json:"detail,omitempty"`
	Prev   string            `json:"prev"` // Hash of the record before; 64 zeros for the first
	Hash   string            `json:"hash"`
}

// Egress is an outbound act.
type Egress struct {
	Via      string   `json:"via"` // redirect, http-proxy, socks5, dns
	Scheme   string   `json:"scheme,omitempty"`
	Host     string   `json:"host,omitempty"`
	Port     uint16   `json:"port,omitempty"`
	Method   string   `json:"method,omitempty"`
	Path     string   `json:"path,omitempty"`  // placeholders and known secrets taken out
	Query    []string `json:"query,omitempty"` // names only
	SNI      string   `json:"sni,omitempty"`
	ALPN     string   `json:"alpn,omitempty"`
	Address  string   `json:"address,omitempty"` // that was dialled
	Secrets  []string `json:"secrets,omitempty"` // names that were put in
	Approval string   `json:"approval,omitempty"`
	Digest   string   `json:"digest,omitempty"` // of the canonical request, for approvals
	Steps    []string `json:"steps,omitempty"`  // stage=verdict:reason, in order
	Opaque   bool     `json:"opaque,omitempty"` // spliced: not looked into
	Flow     string   `json:"flow,omitempty"`   // labels before and after, a later issue fills them
}

// Exec is a command. Its arguments may hold what somebody typed on a command
// line, so that only the program, their number and their digest are kept.
type Exec struct {
	ID        string `json:"id,omitempty"`
	Program   string `json:"program,omitempty"`
	Arguments int    `json:"arguments"`        // behind the program
	Digest    string `json:"digest,omitempty"` // see NewExec
	Level     string `json:"level,omitempty"`
	Workdir   string `json:"workdir,omitempty"`
	End       string `json:"end,omitempty"` // a bailey.EndReason
	Status    int    `json:"status,omitempty"`
}

// Outcome is how an act ended.
type Outcome struct {
	Status   int           `json:"status,omitempty"` // HTTP, from upstream
	Sent     int64         `json:"sent"`
	Received int64         `json:"received"`
	Duration time.Duration `json:"duration"`           // ns
	Scrubbed int           `json:"scrubbed,omitempty"` // echoes of secrets taken out
	Error    string        `json:"error,omitempty"`    // a code, no text of a peer
}

// Checkpoint is a signature over everything before its record.
type Checkpoint struct {
	Key       string `json:"key"`       // Ed25519 public key, hex
	Signature string `json:"signature"` // over CheckpointMessage, hex
}

// Gap says what the log has lost.
type Gap struct {
	Why    string `json:"why"`              // torn, lost or power
	Bytes  int64  `json:"bytes,omitempty"`  // torn: how many bytes of an unfinished record were cut off
	Digest string `json:"digest,omitempty"` // torn: SHA-256 of these bytes, hex
	From   int64  `json:"from,omitempty"`   // lost: the first Seq that is missing; power: that may have been in use
	To     int64  `json:"to,omitempty"`     // lost: the last
	Hash   string `json:"hash,omitempty"`   // lost: of the last
}

// Why there is a gap.
const (
	GapTorn  = "torn"  // a record that was not wholly written, and never acknowledged
	GapLost  = "lost"  // records were on disk and are gone
	GapPower = "power" // the machine went down while the log was in use: the last second may be missing
)
