package changes

import (
	"bufio"
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
	Held      int        `json:"held"`      // paths of git folders that are left alone as a whole
	Conflicts []Conflict `json:"conflicts"` // paths left alone because the host has changed
	Refused   []Refusal  `json:"refused"`   // paths that are never applied, or could not be
	revert    bool       // of a Revert
	forced    bool       // of an Apply with Force
}

// Complete says whether nothing of the set is left to do.
func (r *Report) Complete() bool {
	return r.Left+r.Held == 0 && len(r.Conflicts) == 0 && len(r.Refused) == 0
}

// Refusal is a path that was left alone, and why.
type Refusal struct {
	Root int    `json:"root"`
	Path string `json:"path"`
	Why  string `json:"why"`
	// Folder is the git folder of which, because of this path, nothing was
	// done, and Held the number of paths that would have been.
	Folder string `json:"git_folder,omitempty"`
	Held   int    `json:"held,omitempty"`
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

// counts gives what was done in one line, without what there was none of.
func (r *Report) counts() string {
	verb := "applied"
	if r.revert {
		verb = "taken back"
	}
	text := fmt.Sprintf("%d %s", r.Done, verb)
	if r.Merged > 0 {
		text += fmt.Sprintf(" (%d merged)", r.Merged)
	}
	conflicts, refused := 0, 0
	for _, c := range r.Conflicts {
		if c.Folder == "" {
			conflicts++
		}
	}
	for _, f := range r.Refused {
		if f.Folder == "" {
			refused++
		}
	}
	for _, part := range []struct {
		n    int
		what string
	}{{r.Same, "already so"}, {conflicts, "in conflict"}, {refused, "refused"}, {r.Held, "of git folders left alone"}, {r.Left, "not selected"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	return text
}

// Write writes the report for people, with what to do about what is left.
func (r *Report) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, r.counts())
	plain := false
	var held *Refusal
	for i := range r.Conflicts {
		c := &r.Conflicts[i]
		fmt.Fprintf(out, "  conflict: %s: %s\n    base:    %s\n    host:    %s\n    sandbox: %s\n", Printable(c.Path), Printable(c.Why), c.Base, c.Host, c.Sandbox)
		if c.Folder != "" {
			held = &c.Refusal
			r.because(out, held)
		} else {
			plain = true
		}
	}
	for i := range r.Refused {
		f := &r.Refused[i]
		fmt.Fprintf(out, "  refused: %s: %s\n", Printable(f.Path), Printable(f.Why))
		if f.Folder != "" {
			held = f
			r.because(out, held)
		}
	}
	switch {
	case plain && r.forced:
		fmt.Fprintln(out, "  next: what is there is the host's own and newer than the run; keep it, or remove it yourself")
	case plain:
		fmt.Fprintln(out, "  next: `bailey apply --force` takes the sandbox's side, `--merge` merges text that both sides have changed")
	}
	switch {
	case held != nil && r.revert:
		fmt.Fprintf(out, "  next: take it back with git itself, as with `git revert` or `git reset`\n")
	case held != nil:
		fmt.Fprintf(out, "  next: use `git add` and `git commit` on the files yourself, or `bailey apply --force`, which takes the sandbox's side\n")
	}
	return out.Flush()
}

// because says what a path means for the git folder it is in.
func (r *Report) because(w io.Writer, f *Refusal) {
	verb := "applied"
	if r.revert {
		verb = "taken back"
	}
	others := ""
	if r.Done > 0 {
		others = "; the other files were"
	}
	fmt.Fprintf(w, "    so nothing of %s was %s, since half of it would break the repository%s\n", Printable(f.Folder), verb, others)
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
