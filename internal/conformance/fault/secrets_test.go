//go:build linux

package fault

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// echoing is a server that answers with the credential that it got and with all
// that it ever got.
type echoing struct {
	port int
	mu   sync.Mutex
	seen []string
}

func echo(t *testing.T) *echoing {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echoing{port: l.Addr().(*net.TCPAddr).Port}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen = append(e.seen, r.Header.Get("Authorization"))
		fmt.Fprintln(w, "seen:", strings.Join(e.seen, " "))
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return e
}

// took gives what came since the last time.
func (e *echoing) took() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all, e.seen = e.seen, nil
	return all
}

// document is a policy that lets requests go to the server, with a secret.
func (e *echoing) document(more string) string {
	return fmt.Sprintf("version: 1\negress:\n  rules:\n    - {name: echo, hosts: ['localhost:%d'], protocol: http, internal: [127.0.0.0/8, '::1/128'], secret: TOKEN, plain_secrets: true}\n"+
		"secrets:\n  TOKEN: {secret: TOKEN, env: TOKEN}\n%s", e.port, more)
}

// requester is a sandbox that makes a request for each line it is told.
type requester struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs *spoken
}

// requests starts `bailey run` with a script that makes requests of the server.
func requests(t *testing.T, y *rig.Yard, port int, args ...string) *requester {
	t.Helper()
	script := fmt.Sprintf(`while read -r path; do
		exec 3<>/dev/tcp/198.18.0.1/3128
		printf 'GET http://localhost:%[1]d%%s HTTP/1.1\r\nHost: localhost:%[1]d\r\nAuthorization: Bearer %%s\r\nConnection: close\r\n\r\n' "$path" "$TOKEN" >&3
		cat <&3 | tr '\r\n' '  '; echo
		exec 3>&-
	done`, port)
	r := &requester{t: t, errs: new(spoken)}
	r.cmd = y.Bailey(append(append([]string{"run", "--discard"}, args...), "--", "bash", "-c", script)...)
	r.cmd.Stderr = r.errs
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.out = bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.end() })
	return r
}

// get makes one request and gives the answer in one line.
func (r *requester) get(path string) string {
	r.t.Helper()
	if _, err := io.WriteString(r.in, path+"\n"); err != nil {
		r.t.Fatalf("%v: %s", err, r.errs)
	}
	line, err := r.out.ReadString('\n')
	if err != nil {
		r.t.Fatalf("%v: %s", err, r.errs)
	}
	return line
}

// until makes requests until the answer has a text, and gives that answer.
func (r *requester) until(path, has string) string {
	r.t.Helper()
	for deadline := time.Now().Add(rig.Patience); ; time.Sleep(50 * time.Millisecond) {
		line := r.get(path)
		if strings.Contains(line, has) {
			return line
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("no answer has %q; the last is %q", has, line)
		}
	}
}

func (r *requester) end() {
	r.in.Close()
	io.Copy(io.Discard, r.out)
	r.cmd.Wait() // it may have been waited for
}

func keepSecret(t *testing.T, y *rig.Yard, name, value string, flags ...string) {
	t.Helper()
	cmd := y.Bailey(append(append([]string{"secret", "set"}, flags...), name)...)
	cmd.Stdin = strings.NewReader(value)
	if r := y.Finish(cmd); r.Code != 0 {
		t.Fatal(r)
	}
}

// child finds a process of Bailey among those that this one has started.
func child(t *testing.T, kind string) int {
	t.Helper()
	for _, pid := range rig.Descendants() {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if args := bytes.Split(line, []byte{0}); len(args) > 2 && string(args[1]) == kind {
			return pid
		}
	}
	t.Fatalf("there is no %s", kind)
	return 0
}

// TestLiveSecrets: what `bailey secret` does is in force in a sandbox that runs,
// and no value that was ever in use comes inside, or lies anywhere on the host.
func TestLiveSecrets(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			e := echo(t)
			y := rig.New(t, who)
			y.Write("policy.yaml", e.document(""), 0o644)
			values := []string{"first-value-1abc", "second-value-2abc", "third-value-3abc"}
			keepSecret(t, y, "TOKEN", values[0])
			r := requests(t, y, e.port, "--policy=policy.yaml")
			if line := r.get("/"); !strings.Contains(line, " 200 ") || strings.Join(e.took(), ",") != "Bearer "+values[0] {
				t.Fatalf("%q: %s", line, r.errs)
			}
			var answers strings.Builder
			keepSecret(t, y, "TOKEN", values[1])
			for deadline := time.Now().Add(rig.Patience); ; {
				answers.WriteString(r.get("/"))
				got := e.took()
				e.mu.Lock()
				e.seen = got[:1:1] // old values go on being echoed
				e.mu.Unlock()
				if last := got[len(got)-1]; last == "Bearer "+values[1] {
					break
				} else if time.Now().After(deadline) {
					t.Fatalf("the new value is not used, but %q", last)
				}
			}
			answers.WriteString(r.get("/"))
			y.Must("secret", "revoke", "TOKEN")
			answers.WriteString(r.until("/", "secret_revoked"))
			e.took()
			answers.WriteString(r.get("/"))
			if got := e.took(); len(got) > 0 {
				t.Errorf("after it was revoked: %q", got)
			}
			keepSecret(t, y, "TOKEN", values[2])
			answers.WriteString(r.until("/", " 200 "))
			y.Must("secret", "rm", "TOKEN")
			answers.WriteString(r.until("/", " 403 "))
			e.took()
			keepSecret(t, y, "TOKEN", values[0])
			answers.WriteString(r.until("/", " 200 "))
			nowhere(t, y, values, answers.String())
			kill(t, child(t, "vault"), syscall.SIGKILL)
			r.until("/", " 403 ")
			e.took()
			r.get("/")
			if got := e.took(); len(got) > 0 {
				t.Errorf("without a vault: %q", got)
			}
			r.end()
			if !strings.Contains(r.errs.String(), "the process that holds the secrets has ended") {
				t.Errorf("nobody was told: %s", r.errs)
			}
		})
	}
}

// nowhere looks for values in what came inside, in what processes tell of
// themselves, and in every file of the yard.
func nowhere(t *testing.T, y *rig.Yard, values []string, inside string) {
	t.Helper()
	look := func(where string, text []byte) {
		for _, v := range values {
			if bytes.Contains(text, []byte(v)) {
				t.Errorf("%s has the value %s", where, v)
			}
		}
	}
	look("an answer", []byte(inside))
	for _, pid := range rig.Descendants() {
		for _, name := range []string{"cmdline", "environ"} {
			p := fmt.Sprintf("/proc/%d/%s", pid, name)
			text, _ := os.ReadFile(p)
			look(p, text)
		}
	}
	err := filepath.WalkDir(y.Base, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // mounts of sandboxes, and what has just gone
		}
		text, _ := os.ReadFile(p)
		look(p, text)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestVaultGoesWithTheGate: it ends with the gate, and with bailey, also when
// they are killed.
func TestVaultGoesWithTheGate(t *testing.T) {
	for _, victim := range []string{"gate", "bailey"} {
		t.Run(victim, func(t *testing.T) {
			e := echo(t)
			y := rig.New(t, rig.Self())
			y.Write("policy.yaml", e.document(""), 0o644)
			keepSecret(t, y, "TOKEN", "first-value-1abc")
			r := requests(t, y, e.port, "--policy=policy.yaml")
			r.get("/")
			vault := child(t, "vault")
			pid := r.cmd.Process.Pid
			if victim == "gate" {
				pid = child(t, "gate")
			}
			kill(t, pid, syscall.SIGKILL)
			begin := time.Now()
			rig.Await(vault)
			if took := time.Since(begin); took > rig.Patience/2 {
				t.Errorf("the vault lived on for %v", took)
			}
		})
	}
}
