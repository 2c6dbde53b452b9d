package client

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

func sessionCommand(inv *invocation) (int, error) {
	code := 0 // of a command, for execute alone
	_, err := inv.second(verbs{
		"new": newSession, "ls": listSessions, "show": showSession, "events": sessionEvents, "note": noteInSession, "close": closeSessions,
		"execute": func(inv *invocation) (err error) {
			code, err = executeInSession(inv)
			return err
		},
	})
	return code, err
}

func newSession(inv *invocation) error {
	var f specFlags
	f.add(inv.Flags)
	if err := inv.Alone(); err != nil {
		return err
	}
	spec, err := f.spec()
	if err != nil {
		return err
	}
	// Name, labels and key are the session's own.
	req := api.SessionSpec{Name: spec.Name, Labels: spec.Labels, IdempotencyKey: spec.IdempotencyKey}
	spec.Name, spec.Labels, spec.IdempotencyKey = "", nil, ""
	req.Sandbox = spec
	c, err := inv.connect()
	if err != nil {
		return err
	}
	s, err := c.NewSession(inv.ctx, req)
	if err != nil {
		return err
	}
	return inv.print(map[string]string{"id": s.Ref()}, func(w io.Writer) { fmt.Fprintln(w, s.Ref()) })
}

func listSessions(inv *invocation) error {
	var labels []string
	inv.Flags.StringArrayVar(&labels, "label", nil, "only those with NAME=VALUE")
	if err := inv.Alone(); err != nil {
		return err
	}
	m, err := pairs(labels, "label")
	if err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	list, err := c.Sessions(inv.ctx, m)
	if err != nil {
		return err
	}
	return inv.print(list, func(w io.Writer) {
		rows := [][]string{{"ID", "NAME", "STATE", "SANDBOX", "GENERATION", "AGE", "EVENTS"}}
		for _, s := range list {
			rows = append(rows, []string{s.ID, s.Name, s.State, s.Sandbox, fmt.Sprint(s.Generation), ago(s.Created), fmt.Sprint(s.Events)})
		}
		table(w, rows)
	})
}

func showSession(inv *invocation) error {
	args, err := inv.some(1, 1, "SESSION")
	if err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	s, err := c.Session(args[0]).Info(inv.ctx)
	if err != nil {
		return err
	}
	return inv.print(s, func(w io.Writer) {
		table(w, [][]string{{"id", s.ID}, {"name", s.Name}, {"state", s.State}, {"owner", s.Owner}, {"sandbox", s.Sandbox},
			{"sandboxes", strings.Join(s.Sandboxes, " ")}, {"generation", fmt.Sprint(s.Generation)}, {"checkpoint", s.Checkpoint},
			{"created", s.Created.Local().Format(time.DateTime)}, {"events", fmt.Sprint(s.Events)}})
	})
}

func sessionEvents(inv *invocation) error {
	follow := inv.Flags.BoolP("follow", "f", false, "go on until it is closed")
	from := inv.Flags.Int64("from", 0, "begin at this number")
	args, err := inv.some(1, 1, "SESSION")
	if err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	return inv.ended(c.Session(args[0]).Events(inv.ctx, *from, *follow, func(ev api.SessionEvent) error {
		if inv.JSON {
			return inv.line(ev)
		}
		_, err := fmt.Fprintln(inv.Stdout, ev.Seq, ev.Time.Local().Format(time.DateTime), ev.Kind, terminal.Printable(string(ev.Data)))
		return err
	}))
}

// executeInSession runs a command in the session's sandbox, whichever that is now.
func executeInSession(inv *invocation) (int, error) {
	var f execFlags
	f.add(inv)
	var req api.ExecuteRequest
	inv.Flags.StringVar(&req.Name, "name", "", "what the step is called in the log")
	input := inv.Flags.BoolP("stdin", "i", false, "give it this program's input")
	before, cmd, err := inv.split()
	if err != nil {
		return 0, err
	}
	if len(before) != 1 || len(cmd) == 0 {
		return 0, bailey.Errorf(bailey.CodeUsage, "run bailey session execute", "call it as bailey session execute SESSION -- CMD...", "a session and a command are needed")
	}
	if req.Exec, err = f.spec(cmd); err != nil {
		return 0, err
	}
	req.Generation, req.Exec.Generation = f.Generation, 0
	if *input {
		if req.Input, err = io.ReadAll(io.LimitReader(os.Stdin, maxInput+1)); err != nil {
			return 0, err
		}
		if len(req.Input) > maxInput {
			return 0, bailey.Errorf(bailey.CodeTooLarge, "send the input", "write it to a file of the sandbox first", "it has more than %d bytes", maxInput)
		}
	}
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	res, err := c.Session(before[0]).Execute(inv.ctx, req)
	if err != nil {
		return 0, err
	}
	if inv.JSON {
		if err := inv.line(res); err != nil {
			return 0, err
		}
	} else {
		out, errs := inv.outputs()
		if _, err := out.Write(res.Out); err != nil {
			return 0, err
		}
		if _, err := errs.Write(res.Err); err != nil {
			return 0, err
		}
		if res.Truncated {
			inv.Say("only a part of the output is kept: bailey logs %s %s", res.Sandbox, res.ID)
		}
	}
	if res.End == nil {
		return 0, bailey.Errorf(bailey.CodeProtocol, "say how the command ended", "", "the daemon did not")
	}
	return inv.verdict(*res.End), nil
}

// maxInput bounds what a step gets as input, in bytes.
const maxInput = 8 << 20

func noteInSession(inv *invocation) error {
	args, err := inv.some(2, 2, "SESSION TEXT")
	if err != nil {
		return err
	}
	data, err := json.Marshal(args[1])
	if err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	ev, err := c.Session(args[0]).Append(inv.ctx, api.SessionEvent{Kind: "note", Data: data})
	if err != nil {
		return err
	}
	return inv.print(ev, func(w io.Writer) { fmt.Fprintln(w, ev.Seq) })
}

func closeSessions(inv *invocation) error {
	return inv.eachNamed("SESSION...", func(c *client.Client, ref string) error { return c.Session(ref).Close(inv.ctx) })
}
