package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/approval"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// approvalsCommand answers what sandboxes of runs that go on ask for.
func approvalsCommand(inv *invocation) (int, error) {
	inv.Flags.SetInterspersed(true)
	scope := inv.Flags.String("scope", "once", "approve: `once` for this act alone, session for all that the rule allows until the run ends")
	all := inv.Flags.Bool("all", false, "ls: those that have been answered, too")
	inv.Flags.BoolVar(&inv.JSON, "json", false, "print JSON")
	args, err := inv.Parse()
	if err != nil {
		return 0, err
	}
	usage := func(format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, "run bailey approvals", "as in: bailey approvals ls, or bailey approvals approve ID", format, args...)
	}
	if len(args) == 0 {
		return 0, usage("it is not said what to do")
	}
	verb, args := args[0], args[1:]
	takes := map[string]int{"ls": 0, "watch": 0, "show": 1, "approve": 1, "deny": 1}
	n, known := takes[verb]
	switch {
	case !known:
		return 0, usage("there is no approvals %s", strconv.Quote(verb))
	case len(args) != n:
		return 0, usage("%s takes %d ids, and there are %d", verb, n, len(args))
	case *scope != "once" && *scope != "session":
		return 0, usage("there is no scope %s", strconv.Quote(*scope))
	case inv.Flags.Changed("scope") && verb != "approve":
		return 0, usage("--scope is for approve")
	}
	f, err := folder.Open()
	if err != nil {
		return 0, err
	}
	home := f.Path()
	switch verb {
	case "ls":
		list, err := approval.List(home)
		if err != nil {
			return 0, err
		}
		return 0, inv.listQuestions(list, *all)
	case "watch":
		return 0, inv.watchQuestions(home)
	}
	e, err := approval.Find(home, args[0])
	if err != nil {
		return 0, err
	}
	v := approval.No
	switch verb {
	case "show":
		if inv.JSON {
			return 0, json.NewEncoder(inv.Stdout).Encode(e)
		}
		inv.showQuestion(e)
		return 0, nil
	case "approve":
		v = approval.Verdict(*scope)
	}
	if err := approval.Decide(home, e, v); err != nil {
		return 0, err
	}
	if inv.JSON {
		return 0, json.NewEncoder(inv.Stdout).Encode(map[string]string{"id": e.ID, "verdict": string(v)})
	}
	word := map[approval.Verdict]string{approval.Once: "allowed once", approval.Session: "allowed until the run ends", approval.No: "denied"}[v]
	fmt.Fprintf(inv.Stdout, "%s: %s\n", word, terminal.Shorten(e.What, shownQuestion))
	return 0, nil
}

// shownQuestion bounds what is shown of an act in a line, in characters.
const shownQuestion = 120

func (inv *invocation) listQuestions(list []approval.Entry, all bool) error {
	shown := []approval.Entry{}
	for _, e := range list {
		if all || e.Answer == nil {
			shown = append(shown, e)
		}
	}
	if inv.JSON {
		return json.NewEncoder(inv.Stdout).Encode(shown)
	}
	if len(shown) == 0 {
		inv.Say("no sandbox asks for anything")
		return nil
	}
	w := tabwriter.NewWriter(inv.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSANDBOX\tWAITS\tRULE\tWHAT")
	for _, e := range shown {
		waits := time.Until(e.Until).Round(time.Second).String()
		if e.Answer != nil {
			waits = string(e.Answer.Verdict)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.ID, terminal.Printable(e.Sandbox), waits, terminal.Shorten(e.Rule, 40), terminal.Shorten(e.What, shownQuestion))
	}
	return w.Flush()
}

func (inv *invocation) showQuestion(e approval.Entry) {
	fmt.Fprintf(inv.Stdout, "%s, asked at %s\n%s", e.ID, e.Asked.Local().Format(time.DateTime), run.QuestionText(e.Question))
	if e.Answer != nil {
		fmt.Fprintf(inv.Stdout, "answered: %s by %s\n", e.Answer.Verdict, terminal.Printable(e.Answer.By))
	}
}

// watchQuestions prints each question as it comes, and its end, until it is
// interrupted.
func (inv *invocation) watchQuestions(home string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	seen := map[string]bool{} // open ones
	return approval.Watch(ctx, home, func(list []approval.Entry) error {
		now := map[string]bool{}
		for _, e := range list {
			if e.Answer != nil {
				if seen[e.ID] {
					delete(seen, e.ID)
					if err := inv.tellQuestion(e); err != nil {
						return err
					}
				}
				continue
			}
			now[e.ID] = true
			if !seen[e.ID] {
				seen[e.ID] = true
				if err := inv.tellQuestion(e); err != nil {
					return err
				}
			}
		}
		for id := range seen {
			if !now[id] { // its run has ended
				delete(seen, id)
			}
		}
		return nil
	})
}

func (inv *invocation) tellQuestion(e approval.Entry) error {
	if inv.JSON {
		return json.NewEncoder(inv.Stdout).Encode(e)
	}
	inv.showQuestion(e)
	_, err := fmt.Fprintln(inv.Stdout)
	return err
}
