package agenttools

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/client"
)

// anthropicSchema names the tools; their inputs are known to the models.
const anthropicSchema = `[
  {"type": "bash_20250124", "name": "bash"},
  {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}
]`

// toolUse is a block of a model's answer.
type toolUse struct {
	Type  string          `json:"type,omitempty"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// toolResult is the block that answers it in the next request.
type toolResult struct {
	Type    string `json:"type"`
	ID      string `json:"tool_use_id"`
	Content string `json:"content"`
	IsError bool   `json:"is_error,omitempty"`
}

func (t *Tools) anthropic(ctx context.Context, line []byte) any {
	var u toolUse
	out := toolResult{Type: "tool_result"}
	err := json.Unmarshal(line, &u) // other fields of a block, as caller, are the vendor's
	if err != nil {
		err = bailey.Errorf(bailey.CodeUsage, "read a call", "give a tool_use block as one line of JSON", "%w", err)
	}
	out.ID = u.ID
	var box *client.Sandbox
	if err == nil && u.Name != "bash" && u.Name != "str_replace_based_edit_tool" {
		err = bailey.Errorf(bailey.CodeUsage, "call a tool", "call bash or str_replace_based_edit_tool", "there is no tool %q", u.Name)
	}
	if err == nil {
		box, err = t.Sandbox(ctx)
	}
	if err == nil && u.Name == "bash" {
		out.Content, err = t.bash(ctx, box, u.Input)
	} else if err == nil {
		out.Content, err = edit(ctx, box.Files(), u.Input)
	}
	if err != nil {
		out.Content, out.IsError = strings.TrimPrefix(out.Content+"\n"+say(err), "\n"), true
	}
	return out
}

// input reads a tool's input. A field that nobody knows is an error: a model that
// misspells one should hear of it.
func input(raw json.RawMessage, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return bailey.Errorf(bailey.CodeUsage, "read the input", "give what the tool's schema has", "%w", err)
	}
	return nil
}

// bash runs a line in the shell that stays.
func (t *Tools) bash(ctx context.Context, box *client.Sandbox, raw json.RawMessage) (string, error) {
	var in struct {
		Command string `json:"command"`
		Restart bool   `json:"restart"`
		Timeout int64  `json:"timeout_ms"` // Bailey's own, for programs
	}
	if err := input(raw, &in); err != nil {
		return "", err
	}
	d, err := within(in.Timeout)
	if err != nil {
		return "", err
	}
	if in.Restart {
		if t.shell != nil {
			t.shell.end()
			t.shell = nil
		}
		return "the shell was started anew", nil
	}
	if in.Command == "" {
		return "", bailey.Errorf(bailey.CodeUsage, "run a command", "give command, or restart", "it is empty")
	}
	if t.shell == nil {
		if t.shell, err = begin(ctx, box); err != nil {
			return "", err
		}
	}
	out, err := t.shell.do(ctx, in.Command, d)
	if err != nil {
		return "", err
	}
	const how = "write it to a file and look at parts of that"
	text := strings.TrimSuffix(out.stdout.text(how), "\n")
	if errs := strings.TrimSuffix(out.stderr.text(how), "\n"); errs != "" {
		text = strings.TrimPrefix(text+"\n[stderr]\n"+errs, "\n")
	}
	switch {
	case out.late:
		t.shell.end()
		t.shell = nil
		return text, bailey.Errorf(bailey.CodeBusy, "wait for the command", "run what takes long in the background, with its output in a file; the next call has a new shell", "it did not end within %v and was killed with its shell", d)
	case out.dead:
		t.shell.end()
		t.shell = nil
		return text, bailey.Errorf(bailey.CodeSandboxEnded, "go on in the shell", "the next call has a new one", "it has ended, as by exit")
	case out.code != "0":
		text = strings.TrimPrefix(text+"\n[exit code "+out.code+"]", "\n")
	}
	return text, nil
}
