//go:build linux

package fault

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// streams is a policy that lets streams go to the server.
func (o *outside) streams(more string) string {
	_, port, _ := strings.Cut(o.Addr().String(), ":")
	return fmt.Sprintf("version: 1\n%segress:\n  rules:\n    - {name: stream, addresses: [127.0.0.1], ports: [%s], protocol: tcp}\n", more, port)
}

// replaceFile writes a file as editors do: another takes its place.
func replaceFile(t *testing.T, y *rig.Yard, path, text string) {
	t.Helper()
	y.Write(path+".new", text, 0o644)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestPolicyIsFollowed: a run's --policy FILE is in force as it is written. What
// it no longer allows ends, also a connection that is open; what makes no sense is
// reported and changes nothing; and each version is in the log, with where it is
// from.
func TestPolicyIsFollowed(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			o := listen(t)
			e := echo(t)
			y := rig.New(t, who)
			file := filepath.Join(y.Base, "policy.yaml")
			y.Write(file, o.streams(""), 0o644)
			keepSecret(t, y, "TOKEN", "first-value-1abc")
			cmd, out, errs := background(t, y, "run", "--discard", "--policy="+file, "--", "bash", "-c", o.client())
			c := o.accept(t)
			ready(t, c)

			// One that makes no sense is not in force, and one in the same place is.
			replaceFile(t, y, file, "version: 1\nallows: all\n")
			said(t, errs, "is not in force, the one before is")
			if err := os.WriteFile(file, []byte(o.streams("limits: {pids: 100}\n")), 0o644); err != nil {
				t.Fatal(err)
			}
			said(t, errs, "holds from the next run on")
			c.SetDeadline(time.Now().Add(rig.Patience))
			if _, err := c.Write([]byte("still here\n")); err != nil {
				t.Errorf("a connection that is allowed was ended: %v", err)
			}

			// Without the rule it ends, and no other comes about.
			begin := time.Now()
			replaceFile(t, y, file, e.document(""))
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the connection did not end: %v", err)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("the connection ended after %v", took)
			}
			cmd.Wait() // its code is looked at
			if code := cmd.ProcessState.ExitCode(); code != 7 || out.String() != "cut\nno way\n" {
				t.Errorf("exit code %d, %q, %q", code, out, errs)
			}
			select {
			case <-o.conns:
				t.Error("there was a second connection")
			default:
			}
			digests := map[string]bool{}
			log := policies(t, y)
			for _, r := range log {
				digests[r.Policy] = true
				if r.Sandbox == "" || r.Detail["document"] != file {
					t.Errorf("a record without its sandbox or source: %+v", r)
				}
			}
			if len(log) != 3 || len(digests) != 3 {
				t.Errorf("the log has %d versions: %+v", len(log), log)
			}
		})
	}
}

// policies gives the records of policies that came into force.
func policies(t *testing.T, y *rig.Yard) (list []audit.Record) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(y.Must("audit", "show", "--json", "--kind", audit.KindPolicy)))
	for {
		var r audit.Record
		if err := d.Decode(&r); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
}

// said waits until bailey has said something.
func said(t *testing.T, errs *spoken, text string) {
	t.Helper()
	for deadline := time.Now().Add(rig.Patience); !strings.Contains(errs.String(), text); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nobody said %q: %s", text, errs)
		}
	}
}

// TestPolicyWidens: what a new version allows passes from then on.
func TestPolicyWidens(t *testing.T) {
	e := echo(t)
	y := rig.New(t, rig.Self())
	file := filepath.Join(y.Base, "policy.yaml")
	only := func(path string) string {
		return strings.Replace(e.document(""), "hosts", "paths: ["+path+"], hosts", 1)
	}
	y.Write(file, only("/first"), 0o644)
	keepSecret(t, y, "TOKEN", "first-value-1abc")
	r := requests(t, y, e.port, "--policy="+file)
	if line := r.get("/ok"); !strings.Contains(line, " 403 ") {
		t.Errorf("at first: %q", line)
	}
	replaceFile(t, y, file, only("/ok"))
	r.until("/ok", " 200 ")
	if line := r.get("/other"); !strings.Contains(line, " 403 ") {
		t.Errorf("beside what is allowed: %q", line)
	}
	replaceFile(t, y, file, e.document("mode: audit\n"))
	r.until("/other", " 200 ")
	r.end()
	if !strings.Contains(r.errs.String(), "WARNING: the policy is in audit mode") {
		t.Errorf("nobody was told of audit mode: %s", r.errs)
	}
	// From the start, it is said before the command runs.
	if r := y.Run("run", "--discard", "--policy="+file, "--", "sh", "-c", "echo ran >&2"); !strings.Contains(r.Stderr, "WARNING: the policy is in audit mode") ||
		strings.Index(r.Stderr, "WARNING") > strings.Index(r.Stderr, "ran\n") {
		t.Errorf("nobody was told of audit mode at first: %v", r)
	}
}

// TestPolicyThatTheCommandCanWrite: where it could change its own policy, changes
// are not followed.
func TestPolicyThatTheCommandCanWrite(t *testing.T) {
	e := echo(t)
	y := rig.New(t, rig.Self())
	y.Write("policy.yaml", "version: 1\negress: {rules: []}\n", 0o644)
	keepSecret(t, y, "TOKEN", "first-value-1abc")
	cmd := y.Bailey("run", "--writable", "--policy=policy.yaml", "--", "sh", "-c", `cat > policy.yaml; sleep 1; cat policy.yaml`)
	cmd.Stdin = strings.NewReader(e.document(""))
	r := y.Finish(cmd)
	if r.Code != 0 || r.Stdout != e.document("") || !strings.Contains(r.Stderr, "since the command can write to") || strings.Contains(r.Stderr, "in force") {
		t.Errorf("%v", r)
	}
	if log := policies(t, y); len(log) != 1 {
		t.Errorf("the log has %+v", log)
	}
}

// TestProjectNetwork: a trusted bailey.yaml says what may be reached, with its
// policy; one that nobody has trusted, or whose policy has changed, gives no
// network and no secret; flags add, and --net none takes it away.
func TestProjectNetwork(t *testing.T) {
	e := echo(t)
	y := rig.New(t, rig.Self())
	keepSecret(t, y, "TOKEN", "first-value-1abc")
	y.Write("bailey.yaml", "version: 1\npolicy: ci/policy.yaml\nallow: [also.test]\n", 0o644)
	y.Write("ci/policy.yaml", e.document("limits: {pids: 100000}\n"), 0o644)
	script := fmt.Sprintf(`exec 3<>/dev/tcp/198.18.0.1/3128 || exit 4
		printf 'GET http://localhost:%[1]d/ HTTP/1.1\r\nHost: localhost:%[1]d\r\nAuthorization: Bearer %%s\r\nConnection: close\r\n\r\n' "$TOKEN" >&3; head -n 1 <&3; cat /etc/bailey/policy.txt`, e.port)
	run := func(flags ...string) rig.Result {
		return y.Run(append(append([]string{"run", "--discard"}, flags...), "--", "bash", "-c", script)...)
	}
	none := func(when, why string, r rig.Result) {
		t.Helper()
		if got := e.took(); r.Code != 4 || len(got) > 0 || !strings.Contains(r.Stderr, why) {
			t.Errorf("%s: %v, %q", when, r, got)
		}
	}
	none("untrusted", "bailey trust", run())
	hashes := []string{"trust"}
	for _, name := range []string{"bailey.yaml", "ci/policy.yaml"} {
		text, err := os.ReadFile(filepath.Join(y.Work, name))
		if err != nil {
			t.Fatal(err)
		}
		if r := y.Run(append(hashes, "--hash", fmt.Sprintf("%x", sha256.Sum256(text)))...); (r.Code == 0) != (name == "ci/policy.yaml") {
			t.Errorf("trusted with the hash of %s: %v", name, r)
		}
		hashes = append(hashes, "--hash", fmt.Sprintf("%x", sha256.Sum256(text)))
	}
	r := run("--allow=mine.test")
	if got := e.took(); r.Code != 0 || !strings.Contains(r.Stdout, " 200 ") || len(got) != 1 || got[0] != "Bearer first-value-1abc" {
		t.Errorf("trusted: %v, %q", r, got)
	}
	for _, host := range []string{"also.test", "mine.test"} {
		if !strings.Contains(r.Stdout, host) {
			t.Errorf("%s may not be reached: %s", host, r.Stdout)
		}
	}
	none("no network wanted", "you want none", run("--net=none"))
	none("not looked at", "", run("--no-project-file"))
	y.Write("own.yaml", "version: 1\negress: {rules: []}\n", 0o644)
	r = run("--policy=own.yaml")
	if got := e.took(); !strings.Contains(r.Stdout, " 403 ") || len(got) > 0 || !strings.Contains(r.Stderr, "yours is used") {
		t.Errorf("another policy: %v, %q", r, got)
	}
	y.Write("ci/policy.yaml", e.document("mode: audit\n"), 0o644)
	none("changed", "has changed since it was trusted", run())
	// Trusted, it may still not show more of the machine.
	y.Write("ci/policy.yaml", e.document("paths: {allow_read: [/etc/ssh]}\n"), 0o644)
	text := e.document("paths: {allow_read: [/etc/ssh]}\n")
	y.Must("trust", hashes[1], hashes[2], "--hash", fmt.Sprintf("%x", sha256.Sum256([]byte(text))))
	if r := run(); r.Code != bailey.ExitBailey || !strings.Contains(r.Stderr, "[untrusted]") {
		t.Errorf("one that shows more: %v", r)
	}
	y.Must("trust", "--revoke")
	none("revoked", "bailey trust", run())
}
