package folder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	bailey "github.com/bailey-sandbox/bailey"
)

// RecordVersion is the version of run.json that this program writes. Another
// version is an error: a record decides what is done to the host.
const RecordVersion = 1

// State is where a run stands.
type State string

// The states of a run. Interrupted is never written: it is a run that says
// running although nobody holds its lock.
const (
	StateRunning     State = "running"
	StateKept        State = "kept"      // ended; its changes wait for a person
	StateApplied     State = "applied"   // its changes, or those selected, are on the host
	StateDiscarded   State = "discarded" // its changes are gone; the record remains until removed
	StateInterrupted State = "interrupted"
)

// RootMode says how a root is made copy-on-write.
type RootMode string

// The modes of a root.
const (
	ModeOverlay RootMode = "overlay" // layer/upper and layer/work, over the host folder
	ModeCopy    RootMode = "copy"    // layer/tree is a full copy of the host folder
)

// Root is one host folder that a run sees copy-on-write at its own path.
type Root struct {
	Path  string   `json:"path"`  // resolved absolute path on the host, and inside
	Mode  RootMode `json:"mode"`  // overlay or copy
	Why   string   `json:"why"`   // why this mode and, for a second root, why it is there
	Layer string   `json:"layer"` // folder below the run's folder, such as layers/0
	// UserXattr: overlay attributes are called user.overlay.* and not
	// trusted.overlay.*, as for an overlay mounted in a user namespace.
	UserXattr bool `json:"user_xattr,omitempty"`
	// Dev and Ino identify the host folder as it was when the run began.
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
	// Since takes the place of the run's start where a layer was made
	// later: host files changed after it are in conflict.
	Since time.Time `json:"since,omitzero"`
}

// Record is run.json: what is known about a run without its lock.
type Record struct {
	Version     int              `json:"version"`
	ID          string           `json:"id"`
	State       State            `json:"state"`
	Command     []string         `json:"command"`
	Workdir     string           `json:"workdir,omitempty"`
	Roots       []Root           `json:"roots"`
	Level       bailey.Isolation `json:"level"`
	LevelReason string           `json:"level_reason,omitempty"`
	Limits      bailey.Limits    `json:"limits"`
	// Disk is the size in bytes of the disk that the layers lie on; 0 if they
	// lie in the run's folder. See Run.LayerDir.
	Disk int64 `json:"disk,omitempty"`
	// Policy is the digest of what it may reach, and Egress how what it sends
	// gets to the gate; both are empty for a run without a network.
	Policy string `json:"policy,omitempty"`
	Egress string `json:"egress,omitempty"`
	// Started is when Create was called, or Begin for a run made ahead. A host
	// file whose change time is later was changed while the run went on. Linux
	// stamps files with a clock that may lag behind by a tick (at most 10 ms), so
	// a change in the first tick after Create, before any sandbox has run a
	// command, can look older. Begin does without that tick; see startStamp.
	Started time.Time   `json:"started"`
	Ended   time.Time   `json:"ended,omitzero"`
	End     *bailey.End `json:"end,omitempty"`
	// Journal is the path, below the run's folder, of the journal of the
	// apply that is done or under way; empty when there was none.
	Journal string `json:"journal,omitempty"`
}

// maxRecord bounds run.json in bytes; a command line has at most 2 MiB.
const maxRecord = 8 << 20

// ParseRecord reads a run.json. Unknown fields, another version, trailing
// data and paths that leave the run's folder are errors.
func ParseRecord(data []byte) (Record, error) {
	var r Record
	if len(data) > maxRecord {
		return r, fmt.Errorf("the record has %d bytes, more than %d", len(data), maxRecord)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return Record{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Record{}, errors.New("there is something after the record")
	}
	if err := r.validate(); err != nil {
		return Record{}, err
	}
	return r, nil
}

func (r *Record) validate() error {
	if r.Version != RecordVersion {
		return fmt.Errorf("the record has version %d, this program knows %d", r.Version, RecordVersion)
	}
	if !validID(r.ID) {
		return fmt.Errorf("%q is not a run id", r.ID)
	}
	switch r.State {
	case StateRunning, StateKept, StateApplied, StateDiscarded:
	default:
		return fmt.Errorf("%q is not a state a record can have", r.State)
	}
	for _, root := range r.Roots {
		if !filepath.IsAbs(root.Path) || filepath.Clean(root.Path) != root.Path {
			return fmt.Errorf("%q is not a clean absolute path", root.Path)
		}
		if root.Mode != ModeOverlay && root.Mode != ModeCopy {
			return fmt.Errorf("%q is not a mode a root can have", root.Mode)
		}
		if !filepath.IsLocal(root.Layer) {
			return fmt.Errorf("the layer %q leaves the run's folder", root.Layer)
		}
	}
	if r.Journal != "" && !filepath.IsLocal(r.Journal) {
		return fmt.Errorf("the journal %q leaves the run's folder", r.Journal)
	}
	return nil
}
