//go:build linux

package fault

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/embedded"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// gates lists the gates among the processes that this one has started.
func gates() (pids []int) {
	for _, pid := range rig.Descendants() {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if args := bytes.Split(line, []byte{0}); len(args) > 2 && string(args[1]) == "gate" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestOneGateForManySandboxes: the sandboxes of a Client share a gate, and
// nothing else: each reaches what its own Spec allows, with its own placeholder,
// however many come and go beside it, and whenever a new secret is needed.
func TestOneGateForManySandboxes(t *testing.T) {
	e := echo(t)
	y := rig.New(t, rig.Self())
	programs := rig.Programs(t)
	keepSecret(t, y, "TOKEN", "first-value-1abc")
	keepSecret(t, y, "LATER", "later-value-1abc")
	y.Write("token.yaml", e.document(""), 0o644)
	y.Write("later.yaml", strings.ReplaceAll(e.document(""), "secret: TOKEN, env", "secret: LATER, env"), 0o644)
	c, err := embedded.Open(embedded.Options{Home: y.Data, Init: filepath.Join(programs, "bailey-init"), Baileyd: filepath.Join(programs, "baileyd")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create := func(spec bailey.Spec) *embedded.Sandbox {
		t.Helper()
		spec.Workspace = y.Work
		s, err := c.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close(t.Context()) })
		return s
	}
	get := func(s *embedded.Sandbox) (string, []bailey.Denial) {
		t.Helper()
		r, err := s.Run(t.Context(), bailey.Command{Args: []string{"bash", "-c", fmt.Sprintf(`exec 3<>/dev/tcp/198.18.0.1/3128 || exit 4
			printf 'GET http://localhost:%[1]d/ HTTP/1.1\r\nHost: localhost:%[1]d\r\nAuthorization: Bearer %%s\r\nConnection: close\r\n\r\n' "$TOKEN" >&3; cat <&3; echo "$TOKEN"`, e.port)}})
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Stdout), r.Denials
	}
	const n = 6
	var wait sync.WaitGroup
	boxes := make([]*embedded.Sandbox, n)
	for i := range n {
		wait.Go(func() {
			if i%2 == 0 {
				boxes[i] = create(bailey.Spec{Policy: filepath.Join(y.Work, "token.yaml")})
			} else {
				boxes[i] = create(bailey.Spec{Allow: []string{"elsewhere.test"}})
			}
		})
	}
	wait.Wait()
	if t.Failed() {
		return
	}
	first := gates()
	if len(first) != 1 {
		t.Fatalf("%d gates", len(first))
	}
	seen := map[string]bool{}
	for i, s := range boxes {
		out, denials := get(s)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		got := e.took()
		if i%2 == 0 {
			if !strings.Contains(out, " 200 ") || len(got) != 1 || got[0] != "Bearer first-value-1abc" || len(denials) > 0 || seen[lines[len(lines)-1]] {
				t.Errorf("sandbox %d: %q, %q, %v", i, out, got, denials)
			}
			seen[lines[len(lines)-1]] = true
		} else if !strings.Contains(out, " 403 ") || len(got) > 0 || len(denials) != 1 {
			t.Errorf("sandbox %d: %q, %q, %v", i, out, got, denials)
		}
	}
	// One goes, and the others stay; another comes, with a secret that nobody had.
	boxes[0].Close(t.Context())
	later := create(bailey.Spec{Policy: filepath.Join(y.Work, "later.yaml")})
	if out, _ := get(later); !strings.Contains(out, " 200 ") {
		t.Errorf("with a later secret: %q", out)
	}
	if got := e.took(); len(got) != 1 || got[0] != "Bearer later-value-1abc" {
		t.Errorf("with a later secret: %q", got)
	}
	if out, _ := get(boxes[2]); !strings.Contains(out, " 200 ") {
		t.Errorf("beside one that was closed: %q", out)
	}
	if now := gates(); len(now) != 1 || now[0] != first[0] {
		t.Errorf("gates %v became %v", first, now)
	}
	// A gate that dies takes the network of its sandboxes along, and the next
	// sandbox gets another.
	kill(t, first[0], syscall.SIGKILL)
	rig.Await(first[0])
	e.took()
	if out, denials := get(boxes[2]); strings.Contains(out, " 200 ") || len(e.took()) > 0 || len(denials) != 1 || denials[0].Reason != "gate_lost" {
		t.Errorf("without its gate: %q, %v", out, denials)
	}
	if out, _ := get(create(bailey.Spec{Policy: filepath.Join(y.Work, "token.yaml")})); !strings.Contains(out, " 200 ") {
		t.Errorf("with another gate: %q", out)
	}
	// A root file system of its own has the same gate, which is told of it.
	if out, _ := get(create(bailey.Spec{Policy: filepath.Join(y.Work, "token.yaml"), Template: "host"})); !strings.Contains(out, " 200 ") {
		t.Errorf("in a container: %q", out)
	}
	if now := gates(); len(now) != 1 || now[0] == first[0] {
		t.Errorf("gates: %v", now)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if now := gates(); len(now) > 0 {
		t.Errorf("gates are left: %v", now)
	}
}
