package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/server"
	"github.com/bailey-sandbox/bailey/internal/server/standin"
)

// reachable has every port of its sandboxes exposed to everybody; what is behind them
// is a web server that says who asked for what.
type reachable struct {
	*standin.Engine
	behind string
}

func (r reachable) Exposed(ctx context.Context, ref string, port int) (engine.Exposed, error) {
	b, err := r.Sandbox(ctx, owner, ref)
	return engine.Exposed{Sandbox: b.ID, Port: port, Public: true}, err
}

func (r reachable) DialPort(ctx context.Context, ref string, port int) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", r.behind)
}

// TestPorts: requests to PORT-ID.DOMAIN go to sandboxes, all others to the API, on one
// listener and on one of their own, with an own authority's certificate for each name.
func TestPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("inside, for " + r.Host)) })}
	go web.Serve(l)
	defer web.Close()
	for name, change := range map[string]func(*server.Config){
		"one listener":       func(c *server.Config) { c.Listen, c.TLS.Own, c.Ports.Domain = "127.0.0.1:0", true, "boxes.test" },
		"a listener of ours": func(c *server.Config) { c.TLS.Own, c.Ports.Listen, c.Ports.Domain = true, "127.0.0.1:0", "Boxes.test." },
		"without TLS":        func(c *server.Config) { c.Ports.Listen = "127.0.0.1:0" },
	} {
		t.Run(name, func(t *testing.T) {
			e := standin.New()
			b, err := e.Create(t.Context(), owner, api.SandboxSpec{})
			if err != nil {
				t.Fatal(err)
			}
			at := &server.PortAddress{}
			if at.URL(b.ID, 3000) != "" {
				t.Error("there is an address before anybody listens")
			}
			r := run(t, e, func(o *server.Options) {
				change(&o.Config)
				o.Ports, o.PortAddress = reachable{e, l.Addr().String()}, at
			})
			pool := x509.NewCertPool()
			if pem, err := os.ReadFile(filepath.Join(r.home, "tls", "ca.pem")); err == nil {
				pool.AppendCertsFromPEM(pem)
			}
			tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true,
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, "tcp", r.addresses[1])
				}}
			defer tr.CloseIdleConnections()
			c := &http.Client{Transport: tr}
			url := at.URL(b.ID, 3000)
			_, host, _ := strings.Cut(url, "://")
			if status, body := get(t, c, url+"/v1/info"); status != 200 || body != "inside, for "+host {
				t.Errorf("%s: %d %s", url, status, body)
			}
			if status, body := get(t, c, strings.Replace(url, "3000-", "x-", 1)); status != 404 || !strings.Contains(body, "not_found") {
				t.Errorf("no port: %d %s", status, body)
			}
			if status, body := get(t, r.http, "http://"+host+"/v1/sandboxes"); status != 200 || !strings.Contains(body, b.ID) {
				t.Errorf("on the socket everything is the API's: %d %s", status, body)
			}
			if name == "one listener" {
				if status, _ := get(t, c, "https://127.0.0.1/v1/info"); status != 401 {
					t.Errorf("the API without a key: %d", status)
				}
			}
		})
	}
}

func TestPortsConfig(t *testing.T) {
	for want, c := range map[string]server.Ports{
		"":                {Listen: "127.0.0.1:1", TCPRange: "1-2", TCPHost: "::1"},
		"ports.domain":    {Listen: "127.0.0.1:1", Domain: "*.a"},
		"ports.listen":    {Listen: "x"},
		"ports.tcp_range": {TCPRange: "2-1"},
		"ports.tcp_host":  {TCPRange: "1-2", TCPHost: "x"},
	} {
		err := server.Config{Ports: c}.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := (server.Config{Ports: server.Ports{Listen: "0.0.0.0:1"}}).Check(); err == nil {
		t.Error("beyond loopback without TLS")
	}
}
