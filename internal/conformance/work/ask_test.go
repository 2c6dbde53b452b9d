//go:build linux

package work

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// asked is a server of this host, which a sandbox may reach when a person says
// so.
type asked struct {
	y      *rig.Yard
	port   int
	policy string
	hits   atomic.Int64
}

func newAsked(t *testing.T, y *rig.Yard, more string) *asked {
	t.Helper()
	a := &asked{y: y}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a.hits.Add(1)
		fmt.Fprint(w, "from-the-server\n")
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	a.port = l.Addr().(*net.TCPAddr).Port
	a.policy = filepath.Join(y.Base, "policy.yaml")
	y.Write(a.policy, fmt.Sprintf(`version: 1
%s
egress:
  rules:
    - {name: mail, description: our mail server, action: ask, hosts: ["localhost:%d"], protocol: http, internal: [127.0.0.0/8]}
`, more, a.port), 0o644)
	return a
}

// curl gives a shell command that asks the server for a path through the proxy:
// inside, localhost is the sandbox itself.
func (a *asked) curl(path string, flags ...string) string {
	return fmt.Sprintf("NO_PROXY= no_proxy= curl -sS %s 'http://localhost:%d%s'", strings.Join(flags, " "), a.port, path)
}

func (a *asked) run(flags []string, script string) []string {
	return append(append([]string{"run", "--discard", "--policy", a.policy}, flags...), "--", "sh", "-c", script)
}

// pending waits for a question and gives its id.
func (a *asked) pending(t *testing.T) string {
	t.Helper()
	watch := a.y.Bailey("approvals", "watch", "--json")
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(rig.Patience, func() { watch.Process.Kill() })
	defer func() {
		late.Stop()
		watch.Process.Kill()
		watch.Wait()
	}()
	var q struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(out).Decode(&q); err != nil {
		t.Fatalf("no question came: %v", err)
	}
	return q.ID
}

const askPrompt = "once, session or no? "

// T56, V7, V8: on a terminal the person is asked there, sees what is asked, and
// nothing of it can be painted over by the sandbox.
func TestAskedOnTheTerminal(t *testing.T) {
	testneeds.Tool(t, "curl")
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		a := newAsked(t, y, "")
		script := a.curl(`/one?key=x`) + "; " + a.curl("/two") + "; " + a.curl("/three") + "; read line; echo \"line is $line\""
		s := openScreen(t, y, y.Bailey(a.run(l.flags, script)...))
		before := s.modes()
		s.expect("the sandbox asks")
		for _, want := range []string{fmt.Sprintf("GET http://localhost:%d/one\r\n", a.port), "localhost\r\n", fmt.Sprint(a.port, "\r\n"), "GET\r\n", "/one\r\n", "key\r\n",
			"curl\r\n", "sandbox", "mail\r\n", "our mail server", "because", "any http request to localhost"} {
			s.expect(want)
		}
		s.expect(askPrompt)
		s.send("once\r")
		s.expect("from-the-server")
		s.expect("/two\r\n")
		s.expect(askPrompt)
		if a.hits.Load() != 1 {
			t.Errorf("%d requests arrived after one yes", a.hits.Load())
		}
		s.send("s\r") // what permits most has to be written out
		s.expect("written out")
		s.expect(askPrompt)
		s.send("session\r")
		s.expect("from-the-server")
		s.expect("from-the-server") // without a question
		s.send("typed\r")
		s.expect("line is typed")
		if code := s.wait(before); code != 0 || a.hits.Load() != 3 {
			t.Errorf("exit code %d, %d requests arrived", code, a.hits.Load())
		}
		s.mu.Lock()
		n := strings.Count(string(s.shown), askPrompt)
		s.mu.Unlock()
		if n != 3 {
			t.Errorf("asked %d times", n)
		}
		// What was allowed for the session ended with it.
		s = openScreen(t, y, y.Bailey(a.run(l.flags, a.curl("/four"))...))
		s.expect(askPrompt)
		s.send("\x03")
		s.expect("approval_denied")
		s.wait(before)
		if a.hits.Load() != 3 {
			t.Error("a request arrived after ^C")
		}
	})
}

// V7: what the sandbox says in a question is shown as text.
func TestHostileQuestion(t *testing.T) {
	testneeds.Tool(t, "curl")
	y := rig.New(t, rig.Self())
	a := newAsked(t, y, "")
	// Control characters in a path are refused before it comes to a question.
	hostile := "/%E2%80%AEgnp.%E2%80%8B/APPROVED/" + strings.Repeat("x", 6000) + "?%1b%5b2J%0d%0aAPPROVED%E2%80%AE=1"
	s := openScreen(t, y, y.Bailey(a.run(nil, a.curl(hostile, "-g", "--path-as-is"))...))
	before := s.modes()
	s.expect("the sandbox asks")
	s.expect(askPrompt)
	s.mu.Lock()
	shown := string(s.shown)
	s.mu.Unlock()
	for _, bad := range []string{"\x1b[2J", "\u202e", "\u200b", "\nAPPROVED"} {
		if strings.Contains(shown, bad) {
			t.Errorf("%q is on the terminal: %q", bad, shown)
		}
	}
	if len(shown) > 4000 || !strings.Contains(shown, "bytes more)") {
		t.Errorf("the question has %d bytes", len(shown))
	}
	s.send("no\r")
	s.expect("approval_denied")
	s.wait(before)
	if a.hits.Load() != 0 {
		t.Error("a request arrived")
	}
}

// V2: a question is answered once, from whichever terminal comes first.
func TestAnsweredFromAnotherTerminal(t *testing.T) {
	testneeds.Tool(t, "curl")
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			y := rig.New(t, who)
			a := newAsked(t, y, "")
			s := openScreen(t, y, y.Bailey(a.run(nil, a.curl("/one")+"; "+a.curl("/two"))...))
			before := s.modes()
			s.expect(askPrompt)
			id := a.pending(t)
			if shown := y.Must("approvals", "show", id); !strings.Contains(shown, "/one") || !strings.Contains(shown, "our mail server") {
				t.Errorf("shown: %s", shown)
			}
			s.send("on") // half an answer
			y.Must("approvals", "approve", id)
			s.expect("from-the-server")
			s.expect("/two")
			s.expect(askPrompt)
			for _, verb := range []string{"approve", "deny"} {
				if r := y.Run("approvals", verb, id); r.Code != 125 || !strings.Contains(r.Stderr, "has allowed it once") {
					t.Errorf("%s: %v", verb, r)
				}
			}
			s.send("no\r")
			s.expect("approval_denied")
			s.wait(before)
			if r := y.Run("approvals", "approve", id); r.Code != 125 || !strings.Contains(r.Stderr, "[not_found]") {
				t.Errorf("after the run: %v", r)
			}
			if a.hits.Load() != 1 {
				t.Errorf("%d requests arrived", a.hits.Load())
			}
			log := y.Must("audit", "show", "--kind", "approval", "--json")
			if strings.Count(log, `"kind":"approval"`) != 2 || !strings.Contains(log, `"via":"approvals"`) || !strings.Contains(log, `"via":"terminal"`) || !strings.Contains(log, id) {
				t.Errorf("the log has %s", log)
			}
		})
	}
}

// T53, T55, V10: without anybody the answer is a denial, at once or after the
// time that the policy or a flag says, which every client shows; the run goes on.
func TestNobodyAnswers(t *testing.T) {
	testneeds.Tool(t, "curl")
	clients := map[string]string{
		"curl":    "curl -sS -x http://198.18.0.1:3128 --noproxy '' http://localhost:PORT/",
		"python3": `python3 -c 'import urllib.request, urllib.error` + "\n" + `try: urllib.request.urlopen("http://localhost:PORT/")` + "\n" + `except urllib.error.HTTPError as e: print(e.read().decode())'`,
		"node":    `node -e 'require("http").get({host: "198.18.0.1", port: 3128, path: "http://localhost:PORT/", headers: {Host: "localhost:PORT"}}, r => r.pipe(process.stdout))'`,
		"git":     "git ls-remote http://localhost:PORT/x.git",
	}
	for _, c := range []struct{ name, more, reason string }{
		{"unavailable", "", "approval_unavailable"}, {"timeout", "ask_timeout: 1s", "approval_timeout"},
	} {
		for tool, command := range clients {
			if c.more == "" && tool != "curl" {
				continue // the answer is the same, and sooner
			}
			t.Run(c.name+"/"+tool, func(t *testing.T) {
				testneeds.Tool(t, tool)
				y := rig.New(t, rig.Self())
				a := newAsked(t, y, c.more)
				command := strings.ReplaceAll(command, "PORT", fmt.Sprint(a.port))
				r := y.Run(a.run(nil, "export NO_PROXY= no_proxy=; "+command+"; echo went-on")...)
				if r.Code != 0 || !strings.HasSuffix(r.Stdout, "went-on\n") || a.hits.Load() != 0 {
					t.Errorf("%v; %d requests arrived", r, a.hits.Load())
				}
				inside := r.Stdout
				if tool == "git" {
					inside = r.Stderr
				}
				for _, want := range []string{c.reason, "mail", "bailey approvals", "Do not try"} {
					if !strings.Contains(inside, want) {
						t.Errorf("inside, %q is not in %q", want, inside)
					}
				}
				for _, want := range []string{"bailey: denied", c.reason, "by the rule mail", "bailey approvals", "Do not try"} {
					if !strings.Contains(r.Stderr, want) {
						t.Errorf("at the end, %q is not in %q", want, r.Stderr)
					}
				}
			})
		}
	}
	t.Run("json", func(t *testing.T) {
		y := rig.New(t, rig.Self())
		a := newAsked(t, y, "")
		var out struct {
			Egress struct {
				Denials []map[string]any `json:"denials"`
			} `json:"egress"`
		}
		text := y.Must(a.run([]string{"--json"}, a.curl("/")+"; "+a.curl("/"))...)
		if err := json.Unmarshal([]byte(text), &out); err != nil || len(out.Egress.Denials) != 1 {
			t.Fatalf("%v: %s", err, text)
		}
		d := out.Egress.Denials[0]
		if d["reason"] != "approval_unavailable" || d["rule"] != "mail" || d["count"] != 2.0 || d["how_to_ask"] == "" || d["hint"] == "" || d["why"] == "" {
			t.Errorf("%v", d)
		}
	})
}

// V4: a sandbox can neither see its question nor answer it.
func TestOwnQuestion(t *testing.T) {
	testneeds.Tool(t, "curl")
	for _, l := range levels {
		y := rig.New(t, rig.Self())
		a := newAsked(t, y, "")
		script := a.curl("/", "-m 60") + " & until [ -e go ]; do :; done; ls '" + y.Data + "' 2>&1; echo '{\"verdict\":\"session\"}' > '" + y.Data + "/approvals/'$(cat go).answer; wait"
		cmd := y.Bailey(append([]string{"run", "--writable", "--ask-timeout", "60s", "--policy", a.policy}, append(l.flags, "--", "sh", "-c", script)...)...)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		id := a.pending(t)
		y.Write("go", id, 0o644)
		if r := y.Run("approvals", "ls"); !strings.Contains(r.Stdout, id) {
			t.Errorf("%v", r)
		}
		y.Must("approvals", "deny", id)
		cmd.Wait()
		if a.hits.Load() != 0 || !regexp.MustCompile("(?i)no such file").MatchString(out.String()+errs.String()) || !strings.Contains(out.String(), "approval_denied") {
			t.Errorf("%s: %d arrived; %s\n%s", l.name, a.hits.Load(), &out, &errs)
		}
	}
}

// A policy that was learned has been proven, or it is said that it was not.
func TestLearn(t *testing.T) {
	testneeds.Tool(t, "curl")
	y := rig.New(t, rig.Self())
	a := newAsked(t, y, "")
	r := y.Run("policy", "learn", "--", "sh", "-c", "echo out; touch made")
	if r.Code != 0 || r.Stdout != "version: 1\n" || !strings.Contains(r.Stderr, "WARNING") || !strings.Contains(r.Stderr, "proven: nothing was denied") || strings.Count(r.Stderr, "out\n") < 2 {
		t.Errorf("%v", r)
	}
	// An internal address is refused while it is recorded, too.
	file := filepath.Join(y.Base, "learned.yaml")
	r = y.Run("policy", "learn", "-o", file, "--", "sh", "-c", a.curl("/"))
	if r.Code != 1 || r.Stdout != "" || !strings.Contains(r.Stderr, "not public") || !strings.Contains(r.Stderr, "NOT PROVEN") || read(t, file) != "version: 1\n" || a.hits.Load() != 0 {
		t.Errorf("%v", r)
	}
	r = y.Run("policy", "learn", "--", "false")
	if r.Code != 1 || !strings.Contains(r.Stderr, "NOT PROVEN") {
		t.Errorf("%v", r)
	}
	if list := y.List(); len(list) != 0 {
		t.Errorf("runs are left: %v", list)
	}
	for _, flags := range [][]string{{"--allow", "x.test"}, {"--json"}, {"--policy", file}, {"--apply"}} {
		if r := y.Run(append(append([]string{"policy", "learn"}, flags...), "--", "true")...); r.Code != 125 {
			t.Errorf("%q: %v", flags, r)
		}
	}
}
