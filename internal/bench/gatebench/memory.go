package gatebench

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// goalMemory is megabytes.
const goalMemory = 200.0

// Memory is what the gates of many sandboxes take, all in one process, in bytes.
type Memory struct {
	Sandboxes int   `json:"sandboxes"`
	Resident  int64 `json:"resident"`  // VmRSS of /proc/PID/status
	Anonymous int64 `json:"anonymous"` // RssAnon: what no file backs
	First     int64 `json:"first"`     // VmRSS with the first one
	Each      int64 `json:"each"`      // by how much one adds
}

// memory opens the ways out of many sandboxes in one gate, each with a network
// namespace and a policy of its own, and has each make one request over TLS, so
// that it has a certificate and a connection to the server.
func (b *bench) memory(ctx context.Context) (m Measure, err error) {
	m = Measure{What: fmt.Sprintf("memory of one gate process with %d sandboxes, each of which has made a request", b.opt.Sandboxes)}
	g, err := b.startGate()
	if err != nil {
		return m, err
	}
	defer g.stop()
	document := b.policyText()
	mem := &Memory{Sandboxes: b.opt.Sandboxes}
	for i := range b.opt.Sandboxes {
		if ctx.Err() != nil {
			return m, context.Cause(ctx)
		}
		if b.opt.progress != nil {
			b.opt.progress("memory", i, b.opt.Sandboxes)
		}
		if err := inNamespace(func() error { return b.visit(ctx, g, "memory-"+strconv.Itoa(i), document) }); err != nil {
			return m, fmt.Errorf("sandbox %d: %w", i, err)
		}
		if i == 0 {
			if mem.First, _, err = resident(g.cmd.Process.Pid); err != nil {
				return m, err
			}
		}
	}
	if mem.Resident, mem.Anonymous, err = resident(g.cmd.Process.Pid); err != nil {
		return m, err
	}
	mem.Each = (mem.Resident - mem.First) / int64(max(1, b.opt.Sandboxes-1))
	m.Memory = mem
	m.Targets = []result.Target{result.AtMost("resident megabytes", float64(mem.Resident)/1e6, goalMemory)}
	return m, nil
}

// inNamespace runs what in a network namespace of its own. The thread in it ends
// with its goroutine.
func inNamespace(what func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- what()
	}()
	return <-done
}

// visit opens a sandbox's way out and makes one request by it, with everything on
// this thread.
func (b *bench) visit(ctx context.Context, g *gate, sandbox string, document []byte) error {
	tcp, udp, err := yard()
	if err != nil {
		return err
	}
	defer tcp.Close()
	defer udp.Close()
	w, err := g.open(ctx, sandbox, document, tcp, udp)
	if err != nil {
		return err
	}
	ip, err := lookup(apiHost)
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp", at(ip.String(), b.origin.TLS))
	if err != nil {
		return err
	}
	defer c.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.authority)
	t := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: apiHost, NextProtos: []string{"http/1.1"}})
	if _, err := io.WriteString(t, "GET "+answerPath+" HTTP/1.1\r\nHost: "+at(apiHost, b.origin.TLS)+"\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(t), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK || n != int64(len(answer)) {
		return fmt.Errorf("status %d, %d bytes, %v", resp.StatusCode, n, err)
	}
	return nil
}

// resident reads the memory of a process.
func resident(pid int) (all, anonymous int64, err error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, 0, err
	}
	all, anonymous = result.MemField(text, "VmRSS"), result.MemField(text, "RssAnon")
	if all < 0 || anonymous < 0 {
		return 0, 0, fmt.Errorf("/proc/%d/status says nothing of memory", pid)
	}
	return all, anonymous, nil
}
