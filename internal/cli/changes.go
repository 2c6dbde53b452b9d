package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/changes"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// pending says whether a run's changes still wait for somebody.
func pending(r *folder.Run) bool {
	s := r.State()
	return r.Err == nil && (s == folder.StateKept || s == folder.StateInterrupted)
}

// changesCommand shows what a run did, or which runs wait.
func changesCommand(inv *invocation) (int, error) {
	var list, summary bool
	var sel changes.Selection
	inv.Flags.SetInterspersed(true)
	inv.Flags.BoolVar(&list, "list", false, "list the runs, also those that are done with")
	inv.Flags.BoolVar(&summary, "summary", false, "name the paths instead of showing a diff")
	inv.Flags.StringArrayVar(&sel.Only, "only", nil, "these paths or patterns only")
	inv.Flags.StringArrayVar(&sel.Except, "except", nil, "not these paths or patterns")
	inv.Flags.BoolVar(&inv.JSON, "json", false, "print JSON")
	args, err := inv.Parse()
	if err != nil {
		return 0, err
	}
	if err := sel.Check(); err != nil {
		return 0, err
	}
	ref, err := oneRun(args)
	if err != nil {
		return 0, err
	}
	if ref == "" {
		f, err := openFolder()
		if err != nil {
			return 0, err
		}
		runs, err := f.List()
		if err != nil {
			return 0, err
		}
		var waiting []*folder.Run
		for _, r := range runs {
			if list || pending(r) {
				waiting = append(waiting, r)
			}
		}
		if list || len(waiting) != 1 {
			return 0, listRuns(inv, waiting, list)
		}
		ref = waiting[0].ID()
	}
	r, err := lockRun(ref)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	ctx := context.Background()
	set, err := changes.Seal(ctx, r)
	if err != nil {
		return 0, err
	}
	if err := set.Matches(sel); err != nil {
		return 0, err
	}
	set = set.Selected(sel)
	switch {
	case inv.JSON:
		return 0, set.WriteJSON(inv.Stdout)
	case summary:
		return 0, set.WriteSummary(inv.Stdout, -1)
	}
	// For a terminal what would be obeyed is escaped; a pipe gets a diff that
	// programs can apply.
	return 0, changes.Diff(ctx, r, set, inv.Stdout, changes.DiffOptions{Escape: terminal.Is(os.Stdout)})
}

// oneRun reads the one optional argument.
func oneRun(args []string) (string, error) {
	switch len(args) {
	case 0:
		return "", nil
	case 1:
		return args[0], nil
	}
	return "", bailey.Errorf(bailey.CodeUsage, "find the run", "name one", "there are %d names", len(args))
}

type listed struct {
	ID      string       `json:"id"`
	State   folder.State `json:"state"`
	Partly  bool         `json:"partly_applied,omitempty"`
	Started time.Time    `json:"started"`
	Command []string     `json:"command"`
	Folder  string       `json:"folder,omitempty"`
	End     *bailey.End  `json:"end,omitempty"`
}

// listRuns shows runs, one a line: all that there are, or those that wait.
func listRuns(inv *invocation, runs []*folder.Run, all bool) error {
	if inv.JSON {
		out := []listed{}
		for _, r := range runs {
			l := listed{ID: r.ID(), State: r.State(), Partly: partly(r), Started: r.Record.Started, Command: r.Record.Command, End: r.Record.End}
			if len(r.Record.Roots) > 0 {
				l.Folder = r.Record.Roots[0].Path
			}
			out = append(out, l)
		}
		return json.NewEncoder(inv.Stdout).Encode(out)
	}
	if len(runs) == 0 && all {
		fmt.Fprintln(inv.Stdout, "no runs yet")
		return nil
	}
	if len(runs) == 0 {
		fmt.Fprintln(inv.Stdout, "no run has changes that wait; `bailey changes --list` lists all")
		return nil
	}
	for _, r := range runs {
		if r.Err != nil {
			fmt.Fprintf(inv.Stdout, "%-10s  unreadable: %s\n", r.ID(), terminal.Printable(r.Err.Error()))
			continue
		}
		where := ""
		if len(r.Record.Roots) > 0 {
			where = terminal.Printable(r.Record.Roots[0].Path)
		}
		state := string(r.State())
		if partly(r) {
			state = "partly applied"
		}
		fmt.Fprintf(inv.Stdout, "%s  %-14s  %s  %s  %s\n", r.ID(), state, r.Record.Started.Local().Format("2006-01-02 15:04"),
			where, terminal.Shorten(strings.Join(r.Record.Command, " "), 60))
	}
	return nil
}

// partly says whether some of a run's changes are on the host, and not all.
func partly(r *folder.Run) bool { return pending(r) && changes.PartlyApplied(r) }
