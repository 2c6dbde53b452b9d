//go:build linux

package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// agent is a client of the protocol.
type agent struct {
	t        *testing.T
	s        *sdk.ClientSession
	mu       sync.Mutex
	progress []float64
}

// connect has an agent speak over a transport.
func connect(t *testing.T, over sdk.Transport) *agent {
	t.Helper()
	a := &agent{t: t}
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.progress = append(a.progress, r.Params.Progress)
		},
	})
	s, err := c.Connect(t.Context(), over, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.s = s
	t.Cleanup(func() { s.Close() }) // again, where the test looked at how it ends
	return a
}

// stdio starts `bailey mcp`.
func stdio(t *testing.T, y *rig.Yard, args ...string) *agent {
	return connect(t, &sdk.CommandTransport{Command: y.Bailey(append([]string{"mcp"}, args...)...), TerminateDuration: rig.Patience})
}

// call calls a tool and gives its structure and its text.
func (a *agent) call(tool string, args map[string]any) (out map[string]any, text string, failed bool) {
	a.t.Helper()
	r, err := a.s.CallTool(a.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		a.t.Fatalf("%s: %v", tool, err)
	}
	for _, c := range r.Content {
		if c, ok := c.(*sdk.TextContent); ok {
			text += c.Text
		}
	}
	if r.StructuredContent != nil {
		b, err := json.Marshal(r.StructuredContent)
		if err == nil {
			err = json.Unmarshal(b, &out)
		}
		if err != nil {
			a.t.Fatalf("%s: %v", tool, err)
		}
	}
	return out, text, r.IsError
}

// must is call for what has to work.
func (a *agent) must(tool string, args map[string]any) (map[string]any, string) {
	a.t.Helper()
	out, text, failed := a.call(tool, args)
	if failed {
		a.t.Fatalf("%s %v: %s", tool, args, text)
	}
	return out, text
}

// says is call for what has to work and to say something.
func (a *agent) says(tool string, args map[string]any, want string) map[string]any {
	a.t.Helper()
	out, text := a.must(tool, args)
	if !strings.Contains(text, want) {
		a.t.Errorf("%s %v says %q, want %q in it", tool, args, text, want)
	}
	return out
}

// fails is call for what must not work, and says why.
func (a *agent) fails(tool string, args map[string]any, want string) {
	a.t.Helper()
	if _, text, failed := a.call(tool, args); !failed || !strings.Contains(text, want) {
		a.t.Errorf("%s %v: failed %v, it says %q, want %q in it", tool, args, failed, text, want)
	}
}

type is = map[string]any

// TestStdio goes through the tools as an agent has them by one line of configuration.
func TestStdio(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			y := rig.New(t, who)
			y.Serve()
			a := stdio(t, y, "--workdir", "/tmp", "--env", "FROM=flag")
			if left := y.Must("ls", "-q"); left != "" {
				t.Errorf("before the first call there is a sandbox: %s", left)
			}
			a.tools()
			a.commands()
			a.filesAndStates()
			if err := a.s.Close(); err != nil {
				t.Errorf("its end: %v", err)
			}
			if left := y.Must("ls", "-q"); left != "" {
				t.Errorf("the sandbox has outlived its server: %s", left)
			}
		})
	}
}

// tools looks at what is told of tools before they are called.
func (a *agent) tools() {
	a.t.Helper()
	list, err := a.s.ListTools(a.t.Context(), nil)
	if err != nil {
		a.t.Fatal(err)
	}
	reads := map[string]bool{"output": true, "read_file": true, "list_files": true, "search_files": true, "diff": true, "sandbox_info": true, "list_ports": true}
	adds := map[string]bool{"checkpoint": true, "snapshot": true, "expose_port": true}
	for _, tool := range list.Tools {
		n := tool.Annotations
		if n == nil || tool.Description == "" || tool.OutputSchema == nil || n.ReadOnlyHint != reads[tool.Name] || *n.DestructiveHint != (!reads[tool.Name] && !adds[tool.Name]) {
			a.t.Errorf("%s is told as %+v", tool.Name, n)
		}
		if tool.Name == "create_sandbox" {
			a.t.Error("a server with a sandbox of its own makes others")
		}
	}
	if len(list.Tools) != 19 {
		a.t.Errorf("%d tools", len(list.Tools))
	}
}

func (a *agent) commands() {
	t := a.t
	t.Helper()
	out := a.says("run", is{"command": "pwd; echo $FROM; echo bad >&2; exit 3"}, "/tmp\nflag\n\n[stderr]\nbad\n\n[exit code 3]")
	if out["exit_code"] != 3.0 || out["state"] != "ended" {
		t.Errorf("it ended as %v", out)
	}
	a.says("run", is{"command": "true"}, "printed nothing")
	a.says("run", is{"command": "cat; echo $X", "stdin": "in\n", "env": is{"X": "set"}}, "in\nset")
	a.says("run", is{"command": "sleep 1000", "timeout_seconds": 0.2}, "timeout")
	a.fails("run", is{"command": "true", "wait_seconds": -1}, "wait_seconds")
	a.fails("run", is{"command": "true", "max_bytes": 1 << 30}, "max_bytes")
	a.fails("output", is{"exec": "nosuch"}, "not_found")

	// What is cut can be read on, byte by byte, in whole characters.
	out, text := a.must("run", is{"command": "i=0; while [ $i -lt 1000 ]; do printf 'äöü€'; i=$((i+1)); done", "max_bytes": 1000})
	one := out["stdout"].(is)
	if one["cut"] != true || !strings.Contains(text, "stdout_from") {
		t.Errorf("a long output: %v", text)
	}
	whole := one["text"].(string)
	for one["cut"] == true {
		out, _ = a.must("output", is{"exec": out["exec"], "stdout_from": one["next"], "max_bytes": 1000})
		one = out["stdout"].(is)
		whole += one["text"].(string)
	}
	if whole != strings.Repeat("äöü€", 1000) {
		t.Errorf("read on, %d bytes differ", len(whole))
	}

	// One that takes long is started, written to, read and stopped.
	out, _ = a.must("start", is{"command": "while read l; do echo got $l; done; sleep 1000", "open_stdin": true})
	id := out["exec"]
	a.must("write_stdin", is{"exec": id, "text": "one\ntwo\n", "eof": true})
	for deadline := time.Now().Add(rig.Patience); ; {
		if _, text := a.must("output", is{"exec": id, "wait_seconds": 0.05}); strings.Contains(text, "got one\ngot two") && strings.Contains(text, "[it is running") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("what it was written does not come back")
		}
	}
	a.must("stop", is{"exec": id, "signal": "SIGKILL"})
	a.says("output", is{"exec": id, "wait_seconds": 10, "stdout_from": 8}, "got two")

	// Who waits is told that it goes on, and who gives up ends the command.
	params := &sdk.CallToolParams{Name: "run", Arguments: is{"command": "echo $$ > /tmp/pid; echo begun; sleep 1000", "wait_seconds": 1800}}
	params.SetProgressToken("p")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := a.s.CallTool(ctx, params)
		done <- err
	}()
	for deadline := time.Now().Add(rig.Patience); ; time.Sleep(10 * time.Millisecond) {
		a.mu.Lock()
		n := len(a.progress)
		a.mu.Unlock()
		if n > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no progress is told")
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a call that was given up has an answer")
	}
	a.says("run", is{"command": "i=0; while kill -0 $(cat /tmp/pid) 2>/dev/null && [ $i -lt 500 ]; do i=$((i+1)); sleep 0.02; done; [ $i -lt 500 ] && echo gone"}, "gone")
}

func (a *agent) filesAndStates() {
	t := a.t
	t.Helper()
	a.must("write_file", is{"path": "/tmp/d/a.txt", "text": "one two two\n"})
	a.says("read_file", is{"path": "/tmp/d/a.txt", "offset": 4}, "two two")
	a.fails("edit_file", is{"path": "/tmp/d/a.txt", "old": "two", "new": "2"}, "2 times")
	a.fails("edit_file", is{"path": "/tmp/d/a.txt", "old": "three", "new": "3"}, "not in it")
	a.must("checkpoint", is{"name": "before"})
	a.must("edit_file", is{"path": "/tmp/d/a.txt", "old": "two", "new": "2", "all": true})
	a.says("read_file", is{"path": "/tmp/d/a.txt"}, "one 2 2")
	a.says("diff", is{"from": "before"}, "changed /tmp/d/a.txt")
	blob := []byte{0, 1, 2, 0xff}
	a.must("write_file", is{"path": "/tmp/d/b.bin", "base64": base64.StdEncoding.EncodeToString(blob), "mode": "0600"})
	if out, _ := a.must("read_file", is{"path": "/tmp/d/b.bin"}); out["base64"] != base64.StdEncoding.EncodeToString(blob) || out["mode"] != "0600" {
		t.Errorf("bytes: %v", out)
	}
	a.fails("write_file", is{"path": "/tmp/x", "text": "a", "base64": "YQ=="}, "exclude")
	a.fails("write_file", is{"path": "/tmp/x", "text": "a", "mode": "0999"}, "mode")
	a.says("list_files", is{"path": "/tmp/d"}, "/tmp/d/b.bin")
	a.says("search_files", is{"path": "/tmp/d", "text": "one"}, "/tmp/d/a.txt:1: one 2 2")
	a.must("move_file", is{"from": "/tmp/d/b.bin", "to": "/tmp/c.bin"})
	a.must("remove_file", is{"path": "/tmp/c.bin"})
	a.fails("read_file", is{"path": "/tmp/c.bin"}, "not_found")

	r, err := a.s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "bailey:///tmp/d/a.txt"})
	if err != nil || len(r.Contents) != 1 || r.Contents[0].Text != "one 2 2\n" || !strings.HasPrefix(r.Contents[0].MIMEType, "text/plain") {
		t.Errorf("as a resource: %+v %v", r, err)
	}
	if _, err := a.s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "bailey:///tmp/nosuch"}); err == nil {
		t.Error("a resource that is not there is read")
	}
	a.says("undo", is{"to": "before", "kill": true}, "as they were")
	a.says("read_file", is{"path": "/tmp/d/a.txt"}, "one two two")
	a.says("snapshot", is{"name": "kept"}, "files")
	a.says("sandbox_info", is{}, "no network")
	a.says("list_ports", is{}, "[none]")
}

// TestKilled: a server that is killed takes its sandbox along, by the lease.
func TestKilled(t *testing.T) {
	y := rig.New(t, rig.Self())
	y.Serve()
	cmd := y.Bailey("mcp", "--lease", "1s")
	a := connect(t, &sdk.CommandTransport{Command: cmd})
	a.must("run", is{"command": "true"})
	if y.Must("ls", "-q") == "" {
		t.Fatal("it has no sandbox")
	}
	cmd.Process.Kill()
	for deadline := time.Now().Add(rig.Patience); y.Must("ls", "-q") != ""; {
		if time.Now().After(deadline) {
			t.Fatal("its sandbox is left")
		}
	}
	a.s.Close() // whatever it says: the server is gone
}

// TestGivenSandbox: one that was there already stays, and is not changed by flags.
func TestGivenSandbox(t *testing.T) {
	y := rig.New(t, rig.Self())
	y.Serve()
	id := strings.TrimSpace(y.Must("create", "--timeout", "never"))
	if r := y.Run("mcp", "--sandbox", id, "--template", "host"); r.Code != 125 || !strings.Contains(r.Stderr, "[usage]") {
		t.Errorf("with other flags: %v", r)
	}
	a := stdio(t, y, "--sandbox", id)
	if out, _ := a.must("run", is{"command": "echo x > /tmp/from-mcp"}); out["sandbox"] != id {
		t.Errorf("it ran in %v", out["sandbox"])
	}
	a.s.Close()
	if out := y.Must("exec", id, "--", "cat", "/tmp/from-mcp"); out != "x\n" {
		t.Errorf("afterwards: %q", out)
	}
}

// withKey sends a key along.
type withKey struct{ key string }

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if k.key != "" {
		r.Header.Set("Authorization", "Bearer "+k.key)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestHTTP: the daemon's /mcp has the caller's rights, at every request.
func TestHTTP(t *testing.T) {
	y := rig.New(t, rig.Self())
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	y.Serve("--listen", address)
	at := "http://" + address + "/mcp"
	key := func(name string, scopes ...string) string {
		args := []string{"key", "create", "--json", name}
		for _, s := range scopes {
			args = append(args, "--scope", s)
		}
		var k struct{ Token string }
		if err := json.Unmarshal([]byte(y.Must(args...)), &k); err != nil || k.Token == "" {
			t.Fatal(err, k)
		}
		return k.Token
	}
	one, two, looks := key("one"), key("two"), key("looks", "read")
	over := func(key, query string) *agent {
		return connect(t, &sdk.StreamableClientTransport{Endpoint: at + query, HTTPClient: &http.Client{Transport: withKey{key}}})
	}
	a := over(one, "")
	a.fails("run", is{"command": "true"}, "create_sandbox")
	out := a.says("create_sandbox", is{"name": "mine", "isolation": "container"}, "level container")
	id := out["id"].(string)
	a.says("run", is{"sandbox": id, "command": "echo hi"}, "hi")
	a.says("list_sandboxes", is{}, id)
	bound := over(one, "?sandbox=mine")
	bound.says("run", is{"command": "echo bound"}, "bound")
	bound.must("write_file", is{"path": "/tmp/big", "text": strings.Repeat("x", 1<<20)})
	bound.says("run", is{"command": "wc -c < /tmp/big"}, "1048576")

	other := over(two, "")
	other.fails("run", is{"sandbox": id, "command": "echo hi"}, "not_found")
	other.says("list_sandboxes", is{}, "[none]")
	viewer := over(looks, "")
	viewer.fails("create_sandbox", is{}, "forbidden")
	for name, k := range map[string]string{"none": "", "wrong": one[:len(one)-1]} {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", at, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := (&http.Client{Transport: withKey{k}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized || strings.Contains(string(text), "run") {
			t.Errorf("key %s: %d %s", name, resp.StatusCode, text)
		}
	}
	a.must("delete_sandbox", is{"sandbox": id})
	a.says("list_sandboxes", is{}, "[none]")
}
