//go:build linux

package stay

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// levels are those that every host has.
var levels = []bailey.Isolation{bailey.IsolationProcess, bailey.IsolationContainer}

// makes creates a sandbox.
func makes(t *testing.T, d *rig.Daemon, spec api.SandboxSpec) *client.Sandbox {
	t.Helper()
	s, err := d.Client.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// script is a command of a shell.
func script(s string) api.ExecSpec { return api.ExecSpec{Args: []string{s}, Shell: true} }

// web speaks the API as a program without our client would.
func web(y *rig.Yard) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: rig.Patience, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", y.Socket())
	}}, Timeout: 2 * rig.Patience}
}

// TestBytesArrive is T28: a zero byte, and what is no text, arrives by the command
// line, by the client, by the API and at a second reader.
func TestBytesArrive(t *testing.T) {
	want := "a\x00b\n\xff\xfe"
	eachLevel(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		b := makes(t, d, api.SandboxSpec{Name: "box"})
		y.Write("zero", want, 0o644)
		y.Must("cp", y.Work+"/zero", "box:/root/zero")
		if out := y.Must("exec", "--id", "first", "box", "--", "cat", "/root/zero"); out != want {
			t.Errorf("by the command line: %q", out)
		}
		if out := y.Must("logs", "box", "first"); out != want {
			t.Errorf("again: %q", out)
		}
		if out := y.Must("exec", "box", "--", "sh", "-c", "find /root/zero -print0 | grep -Zz zero"); out != "/root/zero\x00" {
			t.Errorf("names: %q", out)
		}
		if r, err := b.Run(t.Context(), script("cat /root/zero; cat /root/zero >&2")); err != nil || string(r.Out) != want || string(r.Err) != want {
			t.Errorf("by the client: %q %q %v", r.Out, r.Err, err)
		}
		resp, err := web(y).Get("http://bailey/v1/sandboxes/box/execs/first/output?stdout=0")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Contains(all, []byte(base64.StdEncoding.EncodeToString([]byte(want)))) {
			t.Errorf("by the API: %q, %v", all, err)
		}
	})
}

// TestMuchOutputAfterPauses is T22: a command goes on through a pause, and 10 MB of
// it come through a stream that is opened afterwards.
func TestMuchOutputAfterPauses(t *testing.T) {
	eachLevel(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		const line, lines = "0123456789abcde\n", 10 << 20 / 16
		b := makes(t, d, api.SandboxSpec{Name: "box"})
		spec := script(fmt.Sprintf("echo ready; read x; yes %s | head -n %d", strings.TrimSpace(line), lines))
		spec.ID, spec.Stdin = "mine", true
		x, err := b.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		y.Must("pause", "box")
		y.Must("resume", "box")
		if err := x.Write(t.Context(), strings.NewReader("go\n"), true); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if end, err := b.Exec("mine").Copy(t.Context(), &out, nil); err != nil || end.ExitCode == nil || *end.ExitCode != 0 {
			t.Errorf("%+v, %v", end, err)
		}
		if out.String() != "ready\n"+strings.Repeat(line, lines) {
			t.Errorf("%d bytes came, or others", out.Len())
		}
		r := y.Run("logs", "-f", "box", "mine")
		if r.Code != 0 || r.Stdout != out.String() {
			t.Errorf("the command line has %d bytes", len(r.Stdout))
		}
	})
}

// TestLostUnderACommand is T23: who waits for a command of a sandbox that dies is told.
func TestLostUnderACommand(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		y.Must("create", "--name", "box")
		s := begin(t, y, "exec", "--id", "x", "box", "--", "sh", "-c", "touch /root/there; exec sleep 1000")
		waitUntil(t, "the command runs", func() bool { return y.Run("files", "stat", "box", "/root/there").Code == 0 })
		began := time.Now()
		var pid int
		waitUntil(t, "the command sleeps", func() bool { pid = first("sleep"); return pid != 0 })
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if code := s.wait(); code != bailey.ExitBailey || !strings.Contains(s.errs.String(), "[sandbox_lost]") {
			t.Errorf("code %d: %s", code, &s.errs)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		says(t, y, 0, "lost", "show", "box")
		says(t, y, bailey.ExitBailey, "[sandbox_lost]", "exec", "box", "--", "true")
	})
}

// TestMemoryLimitIsNamed is T30 and T31: what the memory limit has killed is told
// with the limit, the peak and the victim, also where the program ended as if by
// itself, and also when the sandbox has gone.
func TestMemoryLimitIsNamed(t *testing.T) {
	testneeds.Host(t, testneeds.Cgroups)
	testneeds.Tool(t, "python3")
	const python = "python3" // inside
	const limit = 64 << 20
	each(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		if !y.Who.Root() {
			says(t, y, bailey.ExitBailey, "[limit_unavailable]", "create", "--memory", "64M") // never without it
			return
		}
		for _, level := range levels {
			b := makes(t, d, api.SandboxSpec{Isolation: level, Limits: bailey.Limits{Memory: limit}})
			eat := python + " -c 'bytearray(2<<30)'"
			for _, test := range []struct {
				id, script string
				code       int
				reason     bailey.Reason
				hits       []string
			}{
				{"killed", "exec " + eat, 137, bailey.EndOOM, nil},
				{"itself", eat + "; exit 1", 1, bailey.EndExit, []string{"memory"}},
				{"well", eat + "; exit 0", 0, bailey.EndExit, []string{"memory"}},
				{"other", "exit 1", 1, bailey.EndExit, nil}, // not blamed for the others
			} {
				spec := script(test.script)
				spec.ID = test.id
				r, err := b.Run(t.Context(), spec)
				if err != nil || r.End == nil || r.End.Reason != test.reason || *r.ExitCode != test.code || !slices.Equal(r.End.LimitHits, test.hits) {
					t.Errorf("%s, %s: %+v, %v", level, test.id, r.End, err)
				}
			}
			says(t, y, 137, "memory limit of 64 MiB (victim python", "exec", b.Ref(), "--", python, "-c", "bytearray(2<<30)")
			y.Must("rm", b.Ref())
			x, err := b.Exec("killed").Info(t.Context())
			if e := x.End; err != nil || e == nil || e.Reason != bailey.EndOOM || e.Limit != limit || e.Peak < limit/2 || e.Peak > limit || !strings.HasPrefix(e.Victim, "python") {
				t.Errorf("%s, after delete: %+v, %v", level, e, err)
			}
			says(t, y, 0, "memory limit", "logs", "--list", b.Ref())
		}
	})
}
