package server

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/server/ingress"
	"github.com/bailey-sandbox/bailey/internal/server/listen"
)

// Ports is what the configuration says of ports that are reachable from outside.
type Ports struct {
	Domain   string `yaml:"domain"`    // below which they are; default domain, on loopback localhost
	Listen   string `yaml:"listen"`    // an address of their own; none is that of listen
	TCPRange string `yaml:"tcp_range"` // FROM-TO, ports of the host for those by TCP; none is no TCP
	TCPHost  string `yaml:"tcp_host"`  // the address for those; default 127.0.0.1
}

// PortsDomain is the domain below which ports are, "" if they are nowhere.
func (c Config) PortsDomain() string {
	at := c.portsListen()
	switch {
	case at == "":
		return ""
	case c.Ports.Domain != "":
		return strings.ToLower(strings.Trim(c.Ports.Domain, "."))
	case c.Domain != "":
		return strings.ToLower(strings.Trim(c.Domain, "."))
	case loopback(at):
		return "localhost" // all names below it are this machine, too
	}
	return ""
}

// portsListen is the address at which ports are.
func (c Config) portsListen() string {
	if c.Ports.Listen != "" {
		return c.Ports.Listen
	}
	return c.Listen
}

// PortTCP gives where ports are reachable by TCP.
func (c Config) PortTCP() (engine.PortTCP, error) {
	p := engine.PortTCP{Host: c.Ports.TCPHost}
	if c.Ports.TCPRange == "" {
		return p, nil
	}
	from, to, both := strings.Cut(c.Ports.TCPRange, "-")
	a, err := strconv.ParseUint(from, 10, 16)
	b, berr := strconv.ParseUint(to, 10, 16)
	if !both || err != nil || berr != nil || a == 0 || b < a {
		return p, bailey.Errorf(bailey.CodeUsage, "use ports.tcp_range of the configuration", "write FROM-TO, such as 20000-20099", "%q is no range of ports", c.Ports.TCPRange)
	}
	if p.Host != "" && net.ParseIP(p.Host) == nil {
		return p, bailey.Errorf(bailey.CodeUsage, "use ports.tcp_host of the configuration", "write an address of this machine", "%q is no address", p.Host)
	}
	p.From, p.To = int(a), int(b)
	return p, nil
}

// hostName says whether a domain can be one.
func hostName(s string) bool {
	s = strings.ToLower(strings.Trim(s, "."))
	return s != "" && len(s) < 250 && !strings.HasPrefix(s, "*") && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" && !strings.Contains(s, "..")
}

// PortAddress is where ports are reached, once the server listens. The engine, which
// is there before it, tells it to who asks.
type PortAddress struct{ base atomic.Pointer[portBase] }

type portBase struct{ scheme, behind string }

// URL gives the address of a port, "" as long as nobody listens.
func (a *PortAddress) URL(sandbox string, port int) string {
	b := a.base.Load()
	if b == nil {
		return ""
	}
	return b.scheme + "://" + strconv.Itoa(port) + "-" + sandbox + b.behind
}

func (a *PortAddress) set(domain string, l net.Addr, secure bool) {
	b := &portBase{scheme: "http", behind: "." + domain}
	usual := "80"
	if secure {
		b.scheme, usual = "https", "443"
	}
	if _, port, err := net.SplitHostPort(l.String()); err == nil && port != usual {
		b.behind += ":" + port
	}
	a.base.Store(b)
}

// portsTLS says where the certificates of ports come from that have an address of
// their own.
func (s *Server) portsTLS() listen.TLS {
	c := s.opt.Config
	t := s.withPorts(listen.TLS{Cert: c.TLS.Cert, Key: c.TLS.Key, Own: c.TLS.Own, Email: c.TLS.ACME.Email, Directory: c.TLS.ACME.Directory, Hosts: s.hosts()})
	if c.Domain == "" && loopback(c.Ports.Listen) && !t.Own {
		t.Ports = "" // no authority reaches it: somebody before it has the certificate
	}
	return t
}

// withPorts has certificates for ports as well.
func (s *Server) withPorts(t listen.TLS) listen.TLS {
	if s.ports != nil {
		t.Ports, t.Decide = s.opt.Config.PortsDomain(), s.ports.Decide
	}
	return t
}

// byHost leads requests to ports there, and all others on.
func byHost(ports *ingress.Handler, to, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ports.Below(r.Host) {
			to.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// listenPorts listens at the ports' own address.
func (s *Server) listenPorts(ctx context.Context) (net.Listener, error) {
	at := s.opt.Config.Ports.Listen
	t := s.portsTLS()
	l, err := s.listenTCP(ctx, at, t)
	if err == nil {
		s.portsAt(l.Addr(), t)
	}
	return l, err
}

func (s *Server) portsAt(at net.Addr, t listen.TLS) {
	if s.opt.PortAddress != nil {
		s.opt.PortAddress.set(s.opt.Config.PortsDomain(), at, t.Cert != "" || t.Own || t.Domain != "" || t.Ports != "")
	}
}
