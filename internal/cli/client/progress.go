package client

import (
	"fmt"
	"os"
	"strings"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// progress shows how far a pull or build is: one line that changes on a terminal,
// a line for each step elsewhere.
type progress struct {
	inv  *invocation
	last string
	live bool // the last line has no end yet
}

func (inv *invocation) progress() *progress { return &progress{inv: inv} }

func (p *progress) show(ev api.Progress) {
	if p.inv.JSON {
		_ = p.inv.line(ev) // who reads no more is noticed at the end
		return
	}
	step := terminal.Printable(ev.Step)
	bar := terminal.Is(os.Stderr)
	switch {
	case ev.Log != "":
		p.end()
		fmt.Fprint(p.inv.Stderr, terminal.PrintableText(ev.Log, "\n\t"))
		if !strings.HasSuffix(ev.Log, "\n") {
			fmt.Fprintln(p.inv.Stderr)
		}
	case bar && ev.Total > 0:
		const width = 30
		full := int(width * min(ev.Done, ev.Total) / ev.Total)
		fmt.Fprintf(p.inv.Stderr, "\r\x1b[K[%s%s] %s of %s  %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), size(ev.Done), size(ev.Total), terminal.Shorten(step, 60))
		p.live = true
	case step != "" && step != p.last:
		p.end()
		fmt.Fprintln(p.inv.Stderr, step)
	}
	p.last = step
}

// end ends the line that changes.
func (p *progress) end() {
	if p.live {
		fmt.Fprintln(p.inv.Stderr)
		p.live = false
	}
}
