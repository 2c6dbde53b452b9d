package agenttools

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
)

const openaiSchema = `[
  {"type": "shell", "environment": {"type": "local"}},
  {"type": "apply_patch"}
]`

// openaiCall is an item of a model's answer: shell_call or apply_patch_call.
type openaiCall struct {
	Type   string `json:"type"`
	Call   string `json:"call_id"`
	Action struct {
		Commands []string `json:"commands"`
		Timeout  *int64   `json:"timeout_ms"`
		Most     *int     `json:"max_output_length"`
	} `json:"action"`
	Operation struct {
		Type string `json:"type"`
		Path string `json:"path"`
		Diff string `json:"diff"`
	} `json:"operation"`
}

// shellAnswer is the item that answers a shell_call.
type shellAnswer struct {
	Type   string        `json:"type"`
	Call   string        `json:"call_id"`
	Most   *int          `json:"max_output_length,omitempty"`
	Output []shellOutput `json:"output"`
}

type shellOutput struct {
	Stdout  string       `json:"stdout"`
	Stderr  string       `json:"stderr"`
	Outcome shellOutcome `json:"outcome"`
}

type shellOutcome struct {
	Type string `json:"type"`                // exit or timeout
	Code *int   `json:"exit_code,omitempty"` // of exit
}

// patchAnswer is the item that answers an apply_patch_call.
type patchAnswer struct {
	Type   string `json:"type"`
	Call   string `json:"call_id"`
	Status string `json:"status"` // completed or failed
	Output string `json:"output"`
}

// noCall is the answer to what is no call.
type noCall struct {
	Type    string `json:"type"` // error
	Call    string `json:"call_id,omitempty"`
	Message string `json:"message"`
}

func (t *Tools) openai(ctx context.Context, line []byte) any {
	var c openaiCall
	if err := json.Unmarshal(line, &c); err != nil { // other fields of an item, as status, are the vendor's
		err = bailey.Errorf(bailey.CodeUsage, "read a call", "give a shell_call or apply_patch_call as one line of JSON", "%w", err)
		return noCall{"error", "", say(err)}
	}
	switch c.Type {
	case "shell_call":
		return t.shellCall(ctx, c)
	case "apply_patch_call":
		text, err := t.patchCall(ctx, c)
		if err != nil {
			return patchAnswer{"apply_patch_call_output", c.Call, "failed", say(err)}
		}
		return patchAnswer{"apply_patch_call_output", c.Call, "completed", text}
	}
	return noCall{"error", c.Call, say(bailey.Errorf(bailey.CodeUsage, "call a tool", "give a shell_call or apply_patch_call", "there is no item %q", c.Type))}
}

// shellCall runs the commands of a call, one after the other, each in a shell of its own.
func (t *Tools) shellCall(ctx context.Context, c openaiCall) shellAnswer {
	out := shellAnswer{"shell_call_output", c.Call, c.Action.Most, []shellOutput{}}
	box, err := t.Sandbox(ctx)
	for _, command := range c.Action.Commands {
		var o shellOutput
		if err == nil {
			o, err = oneCommand(ctx, box, command, c)
		}
		if err != nil { // it concerns those that follow, too
			code := bailey.ExitBailey
			o = shellOutput{Stderr: say(err), Outcome: shellOutcome{"exit", &code}}
		}
		out.Output = append(out.Output, o)
	}
	return out
}

func oneCommand(ctx context.Context, box *client.Sandbox, command string, c openaiCall) (o shellOutput, err error) {
	var ms int64
	if c.Action.Timeout != nil {
		ms = *c.Action.Timeout
	}
	limit, err := within(ms)
	if err != nil {
		return o, err
	}
	most := textMost
	if c.Action.Most != nil {
		if most = *c.Action.Most; most < 1 || most > fileMost {
			return o, bailey.Errorf(bailey.CodeUsage, "read max_output_length", "use 1 to 8388608", "%d is out of range", most)
		}
	}
	x, err := box.Start(ctx, api.ExecSpec{Args: []string{command}, Shell: true, Timeout: api.Duration(limit)})
	if err != nil {
		return o, err
	}
	stdout, stderr := clip{most: most}, clip{most: most}
	end, err := x.Copy(ctx, &stdout, &stderr)
	if err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
		defer cancel()
		return o, errors.Join(err, x.Signal(stop, "KILL"))
	}
	const how = "write it to a file and look at parts of that"
	o.Stdout, o.Stderr, o.Outcome = stdout.text(how), stderr.text(how), shellOutcome{"exit", end.ExitCode}
	switch {
	case end.End != nil && end.End.Reason == bailey.EndTimeout:
		o.Outcome = shellOutcome{Type: "timeout"}
	case end.End != nil && end.End.Reason != bailey.EndExit:
		o.Stderr = strings.TrimPrefix(o.Stderr+"\n[ended: "+end.End.String()+"]", "\n")
	}
	if o.Outcome.Type == "exit" && o.Outcome.Code == nil {
		code := 137 // it was ended by what stderr says
		o.Outcome.Code = &code
	}
	return o, nil
}

// patchCall does one operation on one file, all or nothing.
func (t *Tools) patchCall(ctx context.Context, c openaiCall) (string, error) {
	op := c.Operation
	if op.Path == "" {
		return "", bailey.Errorf(bailey.CodeUsage, "apply a patch", "give a path", "there is none")
	}
	box, err := t.Sandbox(ctx)
	if err != nil {
		return "", err
	}
	f := box.Files()
	switch op.Type {
	case "create_file":
		if _, err := f.Stat(ctx, op.Path); bailey.CodeOf(err) != bailey.CodeNotFound {
			if err == nil {
				err = bailey.Errorf(bailey.CodeConflict, "create "+op.Path, "use update_file", "it is there already")
			}
			return "", err
		}
		text, err := created(op.Diff)
		if err != nil {
			return "", err
		}
		_, err = f.WriteFile(ctx, op.Path, []byte(text), 0)
		return "created " + op.Path, err
	case "update_file":
		text, err := content(ctx, f, op.Path)
		if err != nil {
			return "", err
		}
		if text, err = applyPatch(text, op.Diff); err != nil {
			return "", err
		}
		_, err = f.WriteFile(ctx, op.Path, []byte(text), 0)
		return "updated " + op.Path, err
	case "delete_file":
		return "deleted " + op.Path, f.Remove(ctx, op.Path, false)
	}
	return "", bailey.Errorf(bailey.CodeUsage, "apply a patch", "use create_file, update_file or delete_file", "there is no operation %q", op.Type)
}
