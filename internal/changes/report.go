package changes

import (
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// Report is what an Apply or a Revert did.
type Report struct {
	Done      int        `json:"done"`      // paths that are now as asked
	Same      int        `json:"same"`      // paths that were so already
	Merged    int        `json:"merged"`    // of Done, text that was merged with the host's
	Left      int        `json:"left"`      // paths that were not selected
	Conflicts []Conflict `json:"conflicts"` // paths left alone because the host has changed
	Refused   []Refusal  `json:"refused"`   // paths that are never applied, or could not be
}

// Complete says whether nothing of the set is left to do.
func (r *Report) Complete() bool { return r.Left == 0 && len(r.Conflicts) == 0 && len(r.Refused) == 0 }

// Refusal is a path that was left alone, and why.
type Refusal struct {
	Root int    `json:"root"`
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Conflict is a path where the host has changed, with the three sides.
type Conflict struct {
	Refusal
	Base    Side `json:"base"`    // what the sandbox started from
	Host    Side `json:"host"`    // what is there now
	Sandbox Side `json:"sandbox"` // what the sandbox made of it
}

// Side is one of the three sides of a conflict.
type Side struct {
	Known bool      `json:"known"`
	Kind  Kind      `json:"kind"` // empty: not there
	Size  int64     `json:"size"`
	Mode  uint32    `json:"mode"`
	Mtime time.Time `json:"mtime,omitzero"`
	Sum   string    `json:"sha256,omitempty"` // of files up to 64 MiB
}

// String gives the side in a few words.
func (s Side) String() string {
	switch {
	case !s.Known:
		return "not known"
	case s.Kind == None:
		return "not there"
	}
	t := fmt.Sprintf("%s, mode %04o, of %s", s.Kind, s.Mode, s.Mtime.UTC().Format(time.RFC3339))
	if s.Kind == File {
		t += fmt.Sprintf(", %d bytes", s.Size)
	}
	if s.Sum != "" {
		t += ", sha256 " + s.Sum
	}
	return t
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	fmt.Fprintf(w, "%d done", r.Done)
	if r.Merged > 0 {
		fmt.Fprintf(w, " (%d merged)", r.Merged)
	}
	_, err := fmt.Fprintf(w, ", %d already so, %d in conflict, %d refused, %d not selected\n", r.Same, len(r.Conflicts), len(r.Refused), r.Left)
	for _, c := range r.Conflicts {
		_, err = fmt.Fprintf(w, "  conflict: %s: %s\n    base:    %s\n    host:    %s\n    sandbox: %s\n", Printable(c.Path), Printable(c.Why), c.Base, c.Host, c.Sandbox)
	}
	for _, f := range r.Refused {
		_, err = fmt.Fprintf(w, "  refused: %s: %s\n", Printable(f.Path), Printable(f.Why))
	}
	return err
}

const maxReportHash = 64 << 20

func sideOf(id workspace.Identity, kind Kind) Side {
	s := Side{Known: true, Kind: kind}
	if kind == None {
		return s
	}
	s.Size, s.Mode, s.Mtime = id.Size, id.Mode&metaModes, time.Unix(0, id.Mtime)
	if id.HasContent {
		s.Sum = hex.EncodeToString(id.Sum[:])
	}
	return s
}

// sideAt describes what is at rel below the folder fd now.
func sideAt(fd int, rel string) Side {
	n, err := openBeneath(fd, rel, unix.O_PATH|unix.O_NOFOLLOW, false)
	if err != nil {
		return Side{Known: true}
	}
	defer unix.Close(n)
	var st unix.Stat_t
	if unix.Fstat(n, &st) != nil {
		return Side{}
	}
	s := sideOf(workspace.IdentityOf(&st), kindOf(st.Mode))
	if s.Kind == File && s.Size <= maxReportHash {
		if f, _, err := openFile(fd, rel, false); err == nil {
			if h, err := sumFile(f); err == nil {
				s.Sum = hex.EncodeToString(h[:])
			}
			f.Close()
		}
	}
	return s
}
