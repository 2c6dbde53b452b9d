package changes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sort"
)

// Summary counts a set. Files are all entries that are not folders.
type Summary struct {
	Added    int            `json:"added"`
	Modified int            `json:"modified"`
	Deleted  int            `json:"deleted"`
	Folders  int            `json:"folders"`         // folders added, modified or deleted
	Symlinks int            `json:"symlinks"`        // of the files added or modified
	Modes    int            `json:"modes"`           // entries whose mode changed
	Marks    map[string]int `json:"marks,omitempty"` // by class
}

// Empty says whether the run changed nothing.
func (s Summary) Empty() bool { return s.Added+s.Modified+s.Deleted+s.Folders == 0 }

// String gives the counts in one line.
func (s Summary) String() string {
	if s.Empty() {
		return "nothing changed"
	}
	text := fmt.Sprintf("%d added, %d changed, %d deleted", s.Added, s.Modified, s.Deleted)
	if s.Folders > 0 {
		text += fmt.Sprintf(" (and %d folders)", s.Folders)
	}
	return text
}

// Summary counts the set.
func (s *Set) Summary() Summary {
	sum := Summary{Marks: map[string]int{}}
	for i := range s.Changes {
		c := &s.Changes[i]
		kind := c.Is
		if c.Op == Deleted {
			kind = c.Was
		}
		switch {
		case kind == Dir:
			sum.Folders++
		case c.Op == Added:
			sum.Added++
		case c.Op == Deleted:
			sum.Deleted++
		default:
			sum.Modified++
		}
		if c.Is == Symlink {
			sum.Symlinks++
		}
		if c.Mode {
			sum.Modes++
		}
		for _, m := range c.Marks {
			sum.Marks[m.Class]++
		}
	}
	return sum
}

// shownMarks is how many paths of one class a limited summary names.
const shownMarks = 10

// WriteSummary writes the set for people: counts, the first limit paths, and
// the first ten of each class of marks; all of both when limit is negative.
// Names are escaped with Printable.
func (s *Set) WriteSummary(w io.Writer, limit int) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, s.Summary())
	shown := 0
	for i := range s.Changes {
		if limit >= 0 && shown >= limit {
			fmt.Fprintf(out, "  … and %d more\n", len(s.Changes)-shown)
			break
		}
		c := &s.Changes[i]
		fmt.Fprintf(out, "  %s %s%s\n", sign(c), s.Display(c), detail(c))
		shown++
	}
	byMark := map[Mark][]string{}
	for i := range s.Changes {
		c := &s.Changes[i]
		for _, m := range c.Marks {
			byMark[m] = append(byMark[m], s.Display(c))
		}
	}
	classes := make([]Mark, 0, len(byMark))
	for m := range byMark {
		classes = append(classes, m)
	}
	sort.Slice(classes, func(i, j int) bool { return classes[i].Class < classes[j].Class })
	for _, m := range classes {
		fmt.Fprintf(out, "  ! %s: %s\n", m.Class, m.Why)
		for i, p := range byMark[m] {
			if limit >= 0 && i == shownMarks {
				fmt.Fprintf(out, "      … and %d more: `bailey changes --summary`\n", len(byMark[m])-i)
				break
			}
			fmt.Fprintf(out, "      %s\n", p)
		}
	}
	return out.Flush()
}

func sign(c *Change) string {
	switch c.Op {
	case Added:
		return "+"
	case Deleted:
		return "-"
	}
	return "~"
}

func detail(c *Change) string {
	d := ""
	if c.Is == Dir || c.Op == Deleted && c.Was == Dir {
		d = "/"
	}
	if c.TypeChanged() {
		d += fmt.Sprintf(" (was a %s, is a %s)", c.Was, c.Is)
	}
	if c.Is == Symlink {
		d += " -> " + Printable(c.Target)
	}
	if c.Mode && !c.TypeChanged() {
		d += fmt.Sprintf(" (mode %04o, was %04o)", c.Layer.Mode&metaModes, c.Host.Mode&metaModes)
	}
	if c.Owner {
		d += fmt.Sprintf(" (owner %d:%d, was %d:%d)", c.Layer.UID, c.Layer.GID, c.Host.UID, c.Host.GID)
	}
	if c.Xattr {
		d += " (attributes)"
	}
	if c.Binary {
		d += " (binary)"
	}
	if c.Is == File && c.Content || c.Op == Added && c.Is == File {
		d += fmt.Sprintf(" %d bytes", c.Layer.Size)
	}
	if c.Stale {
		d += " (changed on the host meanwhile)"
	}
	return d
}

// WriteJSON writes {"run", "summary", "roots", "changes"}, one change at a
// time.
func (s *Set) WriteJSON(w io.Writer) error {
	out := bufio.NewWriter(w)
	var failed error
	part := func(v any) {
		b, err := json.Marshal(v)
		if err != nil && failed == nil {
			failed = err
		}
		out.Write(b)
	}
	out.WriteString(`{"run":`)
	part(s.Run)
	out.WriteString(`,"summary":`)
	part(s.Summary())
	out.WriteString(`,"roots":`)
	part(s.Roots)
	out.WriteString(`,"changes":[`)
	for i := range s.Changes {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		part(s.Changes[i])
	}
	out.WriteString("]}\n")
	if failed != nil {
		return failed
	}
	return out.Flush()
}
