package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// textWidth is the width that reasons are broken at, in characters.
const textWidth = 100

// WriteText writes the report for people: levels first, since that is what
// they came for, then what was looked at, then what to do.
func (r Report) WriteText(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Bailey %s on %s", or(r.Version, "(development)"), r.System)
	if r.Kernel != "" {
		fmt.Fprintf(&b, ", Linux %s", r.Kernel)
	}
	fmt.Fprintf(&b, ", %s", r.Arch)
	if r.Root {
		b.WriteString(", as root")
	}
	b.WriteString("\n\nIsolation levels\n")
	width := 0
	for _, l := range r.Levels {
		width = max(width, len(l.Level.String()))
	}
	for _, l := range r.Levels {
		yes := "no "
		if l.Available {
			yes = "yes"
		}
		wrapped(&b, fmt.Sprintf("  %-*s  %s  ", width, l.Level, yes), l.Why)
	}

	b.WriteString("\nThis host\n")
	width = 0
	for _, res := range r.Results {
		width = max(width, utf8.RuneCountInString(res.Title))
	}
	for _, res := range r.Results {
		text := res.Value
		if res.Why != "" {
			text += ": " + res.Why
		}
		wrapped(&b, fmt.Sprintf("  %-7s  %-*s  ", res.Status, width, res.Title), text)
	}

	r.writeFixes(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// writeFixes lists what can be done, each thing once.
func (r Report) writeFixes(b *bytes.Buffer) {
	heads := 0
	for _, res := range r.Results {
		if len(res.Fix) == 0 || res.Status == OK && r.Root {
			continue // what only other users lack is in the JSON
		}
		if heads++; heads == 1 {
			b.WriteString("\nWhat to do\n")
		}
		fmt.Fprintf(b, "  %s\n", res.Title)
		for _, s := range res.Fix {
			wrapped(b, "    - ", s.Text)
			writeCommand(b, s.Command)
		}
	}
	for _, l := range r.Levels {
		if len(l.Fix) == 0 || r.shown(l.Fix) {
			continue
		}
		if heads++; heads == 1 {
			b.WriteString("\nWhat to do\n")
		}
		fmt.Fprintf(b, "  level %s\n", l.Level)
		for _, s := range l.Fix {
			wrapped(b, "    - ", s.Text)
		}
	}
}

// writeCommand writes what to type so that it can be copied as it stands: a
// text that ends at its own last line must not be indented.
func writeCommand(b *bytes.Buffer, command string) {
	indent := "        "
	if strings.Contains(command, "<<") {
		indent = ""
	}
	for _, line := range strings.Split(command, "\n") {
		switch {
		case line != "":
			b.WriteString(indent + line + "\n")
		case command != "":
			b.WriteByte('\n')
		}
	}
}

// shown says whether the steps are those of a result already.
func (r Report) shown(fix []Step) bool {
	for _, res := range r.Results {
		if len(res.Fix) == len(fix) && res.Fix[0] == fix[0] {
			return true
		}
	}
	return false
}

// wrapped writes text behind a head, broken at words, with later lines below
// its beginning.
func wrapped(b *bytes.Buffer, head, text string) {
	b.WriteString(head)
	indent := utf8.RuneCountInString(head)
	col := indent
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case col+1+n > textWidth:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			col = indent
		default:
			b.WriteByte(' ')
			col++
		}
		b.WriteString(word)
		col += n
	}
	b.WriteByte('\n')
}

// WriteJSON writes the report as one JSON document.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
