//go:build linux

package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// TestAnthropicTools: a model's calls to the tools it was trained on, line by line.
func TestAnthropicTools(t *testing.T) {
	y := rig.New(t, rig.Self())
	y.Serve()
	type call struct {
		tool, input string
		failed      bool
		want        string // the whole answer; with … at its end, how it begins
	}
	bash := func(input, want string) call { return call{"bash", input, false, want} }
	edit := func(input, want string) call { return call{"str_replace_based_edit_tool", input, false, want} }
	not := func(c call) call { c.failed = true; return c }
	calls := []call{
		bash(`{"command":"cd /tmp; X=5; f() { echo f $1; }; echo \"it's\" $X; echo bad >&2; (exit 3)"}`, "it's 5\n[stderr]\nbad\n[exit code 3]"),
		bash(`{"command":"pwd; f $X; printf noeol"}`, "/tmp\nf 5\nnoeol"),
		bash(`{"command":"true"}`, ""),
		bash(`{"command":"cat; cat <<E\nhere $X\nE"}`, "here 5"),
		bash(`{"command":"seq 1 20000"}`, "1\n2\n…"),
		not(bash(`{"command":"sleep 1000","timeout_ms":1000}`, "cannot wait for the command…")),
		bash(`{"command":"echo anew $X"}`, "anew"),
		not(bash(`{"command":"echo last; exit 4"}`, "last\ncannot go on in the shell…")),
		bash(`{"command":"X=6"}`, ""),
		bash(`{"restart":true}`, "the shell was started anew"),
		bash(`{"command":"echo none $X"}`, "none"),
		not(bash(`{}`, "cannot run a command…")),
		not(bash(`{"cmd":"ls"}`, "cannot read the input…")),
		edit(`{"command":"create","path":"/tmp/d/a.txt","file_text":"one\ntwo\ntwo\n"}`, "wrote /tmp/d/a.txt"),
		not(edit(`{"command":"str_replace","path":"/tmp/d/a.txt","old_str":"two","new_str":"2"}`, "cannot str_replace /tmp/d/a.txt: old_str is in it 2 times…")),
		not(edit(`{"command":"str_replace","path":"/tmp/d/a.txt","old_str":"three","new_str":"3"}`, "cannot str_replace /tmp/d/a.txt: old_str is not in it…")),
		edit(`{"command":"str_replace","path":"/tmp/d/a.txt","old_str":"one\ntwo","new_str":"1\n2"}`, "replaced once in /tmp/d/a.txt"),
		edit(`{"command":"insert","path":"/tmp/d/a.txt","insert_line":2,"insert_text":"mid"}`, "inserted after line 2 of /tmp/d/a.txt"),
		not(edit(`{"command":"insert","path":"/tmp/d/a.txt","insert_line":9,"insert_text":"x"}`, "cannot insert /tmp/d/a.txt: insert_line 9 is out of range…")),
		edit(`{"command":"view","path":"/tmp/d/a.txt"}`, "     1\t1\n     2\t2\n     3\tmid\n     4\ttwo\n"),
		edit(`{"command":"view","path":"/tmp/d/a.txt","view_range":[3,-1]}`, "     3\tmid\n     4\ttwo\n"),
		not(edit(`{"command":"view","path":"/tmp/d/a.txt","view_range":[5,6]}`, "cannot view /tmp/d/a.txt: view_range…")),
		edit(`{"command":"view","path":"/tmp/d"}`, "/tmp/d/a.txt\n"),
		not(edit(`{"command":"view","path":"a.txt"}`, "cannot view a.txt…")),
		not(edit(`{"command":"undo_edit","path":"/tmp/d/a.txt"}`, "cannot edit…")),
		not(call{tool: "python", input: `{}`, want: "cannot call a tool…"}),
	}
	var lines strings.Builder
	for _, c := range calls {
		b, err := json.Marshal(is{"type": "tool_use", "id": c.tool + c.input, "name": c.tool, "input": json.RawMessage(c.input)})
		if err != nil {
			t.Fatal(c.input, err)
		}
		lines.Write(append(b, '\n'))
	}
	lines.WriteString("no call\n")
	cmd := y.Bailey("tool", "anthropic", "--isolation", "container")
	cmd.Stdin = strings.NewReader(lines.String())
	r := y.Finish(cmd)
	answers := strings.Split(strings.TrimSuffix(r.Stdout, "\n"), "\n")
	if len(answers) != len(calls)+1 || r.Code != 0 {
		t.Fatalf("%d answers to %d calls: %v", len(answers), len(calls)+1, r)
	}
	if !strings.Contains(answers[len(calls)], `"is_error":true`) {
		t.Errorf("what is no call: %s", answers[len(calls)])
	}
	for i, c := range calls {
		var a struct {
			Type    string
			ID      string `json:"tool_use_id"`
			Content string
			IsError bool `json:"is_error"`
		}
		if err := json.Unmarshal([]byte(answers[i]), &a); err != nil {
			t.Fatal(err)
		}
		begin, open := strings.CutSuffix(c.want, "…")
		// A shell's line that is empty at the end is not told.
		if good := a.Content == c.want || a.Content+"\n" == c.want || open && strings.HasPrefix(a.Content, begin); !good || a.IsError != c.failed || a.Type != "tool_result" || a.ID != c.tool+c.input {
			t.Errorf("%s %s: %+v, want %q", c.tool, c.input, a, c.want)
		}
	}
	if left := y.Must("ls", "-q"); left != "" {
		t.Errorf("its sandbox is left: %s", left)
	}
	// One call alone, in a sandbox that stays.
	id := strings.TrimSpace(y.Must("create", "--timeout", "never"))
	if out := y.Must("tool", "--sandbox", id, "anthropic", `{"id":"1","name":"bash","input":{"command":"echo one > /tmp/one"}}`); !strings.Contains(out, `"content":""`) {
		t.Errorf("one call: %s", out)
	}
	if out := y.Must("exec", id, "--", "cat", "/tmp/one"); out != "one\n" {
		t.Errorf("afterwards: %q", out)
	}
	if out := y.Must("tool", "--schema", "anthropic"); !strings.Contains(out, "bash_20250124") || !strings.Contains(out, "text_editor_20250728") {
		t.Errorf("schema: %s", out)
	}
}

// TestOpenAITools: shell and apply_patch, line by line.
func TestOpenAITools(t *testing.T) {
	y := rig.New(t, rig.Self())
	y.Serve()
	patch := func(op, path, diff string) is {
		return is{"type": "apply_patch_call", "call_id": op + path, "status": "completed", "operation": is{"type": op, "path": path, "diff": diff}}
	}
	calls := []struct {
		call   is
		answer string // has all of these, divided by |
	}{
		{is{"type": "shell_call", "call_id": "1", "action": is{"commands": []string{"echo out; echo err >&2; exit 3", "pwd"}}},
			`"type":"shell_call_output"|"call_id":"1"|{"stdout":"out\n","stderr":"err\n","outcome":{"type":"exit","exit_code":3}}|{"stdout":"/tmp\n","stderr":"","outcome":{"type":"exit","exit_code":0}}`},
		{is{"type": "shell_call", "call_id": "2", "action": is{"commands": []string{"sleep 1000"}, "timeout_ms": 500}}, `"outcome":{"type":"timeout"}`},
		{is{"type": "shell_call", "call_id": "3", "action": is{"commands": []string{"seq 1 1000"}, "max_output_length": 100}}, `"stdout":"1\n2\n|bytes are left out here|999\n1000\n"|"max_output_length":100`},
		{is{"type": "shell_call", "call_id": "4", "action": is{"commands": []string{"true"}, "timeout_ms": -1}}, `"exit_code":125|out of range`},
		{patch("create_file", "d/a.txt", "+one\n+two\n"), `"type":"apply_patch_call_output"|"call_id":"create_filed/a.txt"|"status":"completed"`},
		{patch("create_file", "d/a.txt", "+x\n"), `"status":"failed"|there already`},
		{patch("update_file", "/tmp/d/a.txt", "@@ one\n-two\n+2\n"), `"status":"completed"`},
		{patch("update_file", "d/a.txt", "@@\n-one\n+1\n@@\n-two\n+3\n"), `"status":"failed"|not in it`},
		{is{"type": "shell_call", "call_id": "5", "action": is{"commands": []string{"cat d/a.txt"}}}, `"stdout":"one\n2\n"`},
		{patch("update_file", "d/none.txt", "+x\n"), `"status":"failed"|not_found`},
		{patch("delete_file", "d/a.txt", ""), `"status":"completed"`},
		{patch("delete_file", "d/a.txt", ""), `"status":"failed"|not_found`},
		{patch("rename_file", "d/a.txt", ""), `"status":"failed"|there is no operation`},
		{is{"type": "function_call", "call_id": "6"}, `"type":"error"|"call_id":"6"`},
	}
	var lines strings.Builder
	for _, c := range calls {
		b, err := json.Marshal(c.call)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(b, '\n'))
	}
	cmd := y.Bailey("tool", "openai", "--isolation", "container", "--workdir", "/tmp")
	cmd.Stdin = strings.NewReader(lines.String() + "no call\n")
	r := y.Finish(cmd)
	answers := strings.Split(strings.TrimSuffix(r.Stdout, "\n"), "\n")
	if len(answers) != len(calls)+1 || r.Code != 0 || !strings.Contains(answers[len(calls)], `"type":"error"`) {
		t.Fatalf("%d answers to %d calls: %v", len(answers), len(calls)+1, r)
	}
	for i, c := range calls {
		for want := range strings.SplitSeq(c.answer, "|") {
			if !strings.Contains(answers[i], want) {
				t.Errorf("%v: %s, want %s in it", c.call, answers[i], want)
			}
		}
	}
	if out := y.Must("tool", "--schema", "openai"); !strings.Contains(out, "apply_patch") {
		t.Errorf("schema: %s", out)
	}
}
