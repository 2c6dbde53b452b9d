package client

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

func listCommand(inv *invocation) (int, error) {
	var q api.SandboxQuery
	var labels, states []string
	all := inv.Flags.BoolP("all", "a", false, "those that have ended, too")
	quiet := inv.Flags.BoolP("quiet", "q", false, "ids only")
	inv.Flags.StringArrayVar(&labels, "label", nil, "only those with NAME=VALUE")
	inv.Flags.StringArrayVar(&states, "state", nil, "only those in the state")
	if err := inv.Alone(); err != nil {
		return 0, err
	}
	var err error
	if q.Labels, err = pairs(labels, "label"); err != nil {
		return 0, err
	}
	for _, s := range states {
		q.States = append(q.States, api.State(s))
	}
	if *all && len(q.States) == 0 {
		q.States = []api.State{api.StateQueued, api.StateCreating, api.StateRunning, api.StatePausing, api.StatePaused, api.StateStopping,
			api.StateStopped, api.StateResuming, api.StateLost, api.StateFailed, api.StateDeleting, api.StateEnded}
	}
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	list := []api.Sandbox{}
	for s, err := range c.AllSandboxes(inv.ctx, q) {
		if err != nil {
			return 0, err
		}
		list = append(list, s)
	}
	return 0, inv.print(list, func(w io.Writer) {
		if *quiet {
			for _, s := range list {
				fmt.Fprintln(w, s.ID)
			}
			return
		}
		rows := [][]string{{"ID", "NAME", "STATE", "LEVEL", "FROM", "AGE", "EXPIRES", ""}}
		for _, s := range list {
			rows = append(rows, []string{s.ID, s.Name, string(s.State), s.Isolation.String(), from(s), ago(s.Created), until(s.Expires), remark(s)})
		}
		table(w, rows)
	})
}

// from says what a sandbox started from.
func from(s api.Sandbox) string {
	switch {
	case s.Parent != "":
		return "snapshot " + s.Parent
	case s.Image != "":
		return s.Image
	}
	return s.Template
}

// remark says what is most worth knowing about a sandbox.
func remark(s api.Sandbox) string {
	switch {
	case s.Error != nil:
		return s.Error.Why
	case s.End != nil:
		return s.End.String()
	case s.Queue != nil:
		text := fmt.Sprintf("place %d: %s", s.Queue.Place, s.Queue.Why)
		if s.Queue.ETA != nil {
			text += ", about " + time.Duration(*s.Queue.ETA).Round(time.Second).String()
		}
		return text
	case len(s.WhyAwake) > 0:
		return "busy: " + strings.Join(s.WhyAwake, " ")
	}
	return ""
}

// ago says how long ago something was.
func ago(t time.Time) string { return span(time.Since(t)) }

// until says how far ahead something is.
func until(t *time.Time) string {
	if t == nil {
		return "never"
	}
	if d := time.Until(*t); d > 0 {
		return "in " + span(d)
	}
	return "now"
}

// span writes a length of time in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// size writes a number of bytes for people.
func size(n int64) string {
	if n < 0 {
		return "-"
	}
	value, unit := float64(n), 0
	for value >= 1024 && unit < 4 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, [...]string{"", "KiB", "MiB", "GiB", "TiB"}[unit])
}

// table writes rows in columns. Names come from sandboxes and other people: they
// are made printable.
func table(w io.Writer, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = terminal.Printable(c)
		}
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	_ = tw.Flush() // an output that is gone is noticed by the kernel
}

func showCommand(inv *invocation) (int, error) {
	s, err := inv.one("SANDBOX")
	if err != nil {
		return 0, err
	}
	info, err := s.Info(inv.ctx)
	if err != nil {
		return 0, err
	}
	return 0, inv.print(info, func(w io.Writer) { table(w, describe(info)) })
}

// describe gives what is known about a sandbox in words.
func describe(s api.Sandbox) (rows [][]string) {
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("id", s.ID)
	add("name", s.Name)
	add("state", string(s.State))
	add("why", remark(s))
	add("level", s.Isolation.String())
	add("because", s.IsolationReason)
	add("from", from(s))
	add("workspace", s.Workspace)
	add("workdir", s.Workdir)
	add("owner", s.Owner)
	add("generation", fmt.Sprint(s.Generation))
	add("created", s.Created.Local().Format(time.DateTime))
	add("expires", until(s.Expires))
	if s.IdleSince != nil {
		add("idle since", s.IdleSince.Local().Format(time.DateTime))
	}
	if s.Lease != nil {
		add("lease until", s.Lease.Until.Local().Format(time.DateTime))
	}
	add("policy", s.Policy)
	add("egress", s.Egress)
	add("warm", s.Warm)
	for _, name := range slices.Sorted(keys(s.Labels)) {
		add("label", name+"="+s.Labels[name])
	}
	for _, m := range s.Mounts {
		add("mount", m)
	}
	for _, v := range s.Volumes {
		add("volume", v.Volume+" at "+v.Target)
	}
	for _, p := range s.Ports {
		add("port", fmt.Sprintf("%d %s", p.Port, p.URL))
	}
	for _, n := range s.Notes {
		add("note", n)
	}
	if s.Receipt != nil {
		add("receipt", receipt(*s.Receipt))
	}
	return rows
}

// receipt says in one line what was kept.
func receipt(r api.Receipt) string {
	text := r.Act + ": kept " + strings.Join(r.Kept, ", ")
	if len(r.Lost) > 0 {
		text += "; lost " + strings.Join(r.Lost, ", ")
	}
	if r.Method != "" {
		text += "; " + r.Method
	}
	if r.Bytes > 0 {
		text += " " + size(r.Bytes)
	}
	return text + fmt.Sprintf(" (%s)", time.Duration(r.Took).Round(10*time.Microsecond))
}
