//go:build linux

package engine

import (
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

func portsOf(t *testing.T, e *Engine, id string) (list []int) {
	t.Helper()
	s, err := e.Sandbox(t.Context(), me, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Ports {
		list = append(list, p.Port)
	}
	return list
}

// TestExposeWithinPolicy: a policy that names ports bounds which can be reached from
// outside, and one that comes later closes those it does not have.
func TestExposeWithinPolicy(t *testing.T) {
	e := openEngine(t, func(o *Options) {
		o.PortURL = func(id string, port int) string { return fmt.Sprintf("https://%d-%s.boxes.test", port, id) }
	})
	rules := func(ports string) json.RawMessage {
		b, err := json.Marshal("version: 1\nports: " + ports + "\n")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	s := create(t, e, api.SandboxSpec{Isolation: bailey.IsolationProcess, Policy: rules("[3000, 4000]")})
	for port, want := range map[int]bailey.Code{3000: "", 4000: "", 5000: bailey.CodeForbidden, 0: bailey.CodeUsage, 65536: bailey.CodeUsage} {
		if _, err := e.Expose(t.Context(), me, s.ID, api.PortRequest{Port: port}); err == nil && want != "" || err != nil && bailey.CodeOf(err) != want {
			t.Errorf("port %d: %v", port, err)
		}
	}
	if list := portsOf(t, e, s.ID); len(list) != 2 || list[0] != 3000 || list[1] != 4000 {
		t.Errorf("exposed are %v", list)
	}
	if _, err := e.UpdatePolicy(t.Context(), me, s.ID, api.SandboxSpec{Policy: rules("[4000]")}); err != nil {
		t.Fatal(err)
	}
	if list := portsOf(t, e, s.ID); len(list) != 1 || list[0] != 4000 {
		t.Errorf("with another policy exposed are %v", list)
	}
	if _, err := e.Expose(t.Context(), Caller{Name: "key:other"}, s.ID, api.PortRequest{Port: 4000}); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("somebody else: %v", err)
	}
	if _, err := e.Expose(t.Context(), me, s.ID, api.PortRequest{Port: 4000, TCP: true, Public: true}); bailey.CodeOf(err) != bailey.CodeNotAvailable {
		t.Errorf("TCP without a range: %v", err)
	}
	for d, want := range map[time.Duration]bailey.Code{time.Hour: "", 0: bailey.CodeUsage, 31 * 24 * time.Hour: bailey.CodeUsage} {
		if _, err := e.PortLink(t.Context(), me, s.ID, 4000, d); err == nil && want != "" || err != nil && bailey.CodeOf(err) != want {
			t.Errorf("a link for %v: %v", d, err)
		}
	}
	if _, err := e.PortLink(t.Context(), me, s.ID, 3000, time.Hour); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("a link to a port that is not exposed: %v", err)
	}
	f, err := e.Fork(t.Context(), me, s.ID, api.ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(f[0].Ports) > 0 {
		t.Errorf("a fork is reachable: %v", f[0].Ports)
	}
}

// TestExposedAgain: after the engine was closed, ports are reachable as before.
func TestExposedAgain(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().(*net.TCPAddr).Port
	free.Close()
	home := newHome(t)
	open := func() *Engine {
		return openEngine(t, func(o *Options) {
			o.Home, o.PortTCP = home, PortTCP{From: at, To: at}
			o.PortURL = func(string, int) string { return "https://x" }
		})
	}
	e := open()
	s := create(t, e, process)
	x, err := e.Expose(t.Context(), me, s.ID, api.PortRequest{Port: 3000})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Expose(t.Context(), me, s.ID, api.PortRequest{Port: 4000, TCP: true, Public: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	address := PortTCP{}.address(at)
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("it listens after its end")
	}
	e = open()
	got, err := e.Exposed(t.Context(), s.ID, 3000)
	if err != nil || !got.Token(x.Token) || got.Token("") || got.Public || !got.Asleep {
		t.Errorf("%+v, %v", got, err)
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil { // nobody listens inside
		t.Errorf("%d, %v", n, err)
	}
	if now, err := e.Sandbox(t.Context(), me, s.ID); err != nil || now.State != api.StateRunning {
		t.Errorf("it was not woken: %s, %v", now.State, err)
	}
}
