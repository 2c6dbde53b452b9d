package ingress

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

var builtDir string

func TestMain(m *testing.M) {
	if os.Getenv(insideVariable) != "" {
		serveInside()
		return
	}
	code := m.Run()
	if builtDir != "" {
		os.RemoveAll(builtDir)
	}
	os.Exit(code)
}

var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("BAILEY_TEST_PROGRAMS"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "bailey-ingress-")
	if err != nil {
		return "", err
	}
	builtDir = dir
	os.Chmod(dir, 0o755)
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/bailey-init", "./cmd/baileyd")
	build.Dir, build.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// clock is the time, which a test can put forward.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	c.ahead += d
	c.mu.Unlock()
}

var me = engine.Caller{Name: "uid:0", Local: true}

const domain = "boxes.test"

// place is an engine with a handler before it.
type place struct {
	t      *testing.T
	e      *engine.Engine
	clock  *clock
	h      *Handler
	server *httptest.Server
	http   *http.Client // HTTP/2
	http1  *http.Client
	tcp    int // the host's port for TCP
}

func newPlace(t *testing.T) *place {
	t.Helper()
	testneeds.Host(t, testneeds.UserNS)
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	os.Chmod(home, 0o700)
	p := &place{t: t, clock: &clock{}}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.tcp = free.Addr().(*net.TCPAddr).Port
	free.Close()
	p.e, err = engine.Open(t.Context(), engine.Options{Home: home, Init: filepath.Join(dir, "bailey-init"), Daemon: filepath.Join(dir, "baileyd"), Clock: p.clock,
		PortURL: func(id string, port int) string { return fmt.Sprintf("https://%d-%s.%s", port, id, domain) }, PortTCP: engine.PortTCP{From: p.tcp, To: p.tcp}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		list, _, err := p.e.Sandboxes(ctx, me, api.SandboxQuery{})
		if err != nil {
			t.Error(err)
		}
		for _, s := range list {
			if err := p.e.Delete(ctx, me, s.ID); err != nil {
				t.Error(err)
			}
		}
		if err := p.e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	p.h = New(Options{Engine: p.e, Domain: domain})
	p.server = httptest.NewUnstartedServer(p.h)
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	t.Cleanup(func() { p.h.Close(); p.server.Close() })
	client := func(h2 bool) *http.Client {
		tr := &http.Transport{ForceAttemptHTTP2: h2, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", p.server.Listener.Addr().String())
			}}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	p.http, p.http1 = client(true), client(false)
	return p
}

// sandbox makes one with the web server in it.
func (p *place) sandbox(name string) api.Sandbox {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := p.e.Create(p.t.Context(), me, api.SandboxSpec{Name: name, Isolation: bailey.IsolationProcess, Mounts: []string{self + ":/opt/server:ro"}})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.e.StartExec(p.t.Context(), me, s.ID, api.ExecSpec{ID: "server", Args: []string{"env", insideVariable + "=1", "/opt/server"}}); err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *place) expose(id string, req api.PortRequest) api.Port {
	p.t.Helper()
	x, err := p.e.Expose(p.t.Context(), me, id, req)
	if err != nil {
		p.t.Fatal(err)
	}
	return x
}

// answered is an answer.
type answered struct {
	*http.Response
	text string
	seen seen
}

func (a answered) code() (code bailey.Code) {
	var problem api.Problem
	json.Unmarshal([]byte(a.text), &problem)
	return problem.Code
}

// ask sends a request with header lines "Name: value".
func (p *place) ask(method, url string, body io.Reader, lines ...string) answered {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, url, body)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	a := answered{Response: resp, text: string(b)}
	json.Unmarshal(b, &a.seen)
	return a
}
