package server

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/server/e2b"
	"github.com/bailey-sandbox/bailey/internal/server/ingress"
	"github.com/bailey-sandbox/bailey/internal/server/listen"
)

// E2B is what the configuration says of the front for clients that were written for E2B.
type E2B struct {
	Listen    string            `yaml:"listen"`    // an address of its own; none is no such front
	Domain    string            `yaml:"domain"`    // below which sandboxes are; none is by headers only
	Templates map[string]string `yaml:"templates"` // names that clients ask for, and Bailey's
	Allow     []string          `yaml:"allow"`     // what its sandboxes may reach at most; none is no network
	Level     bailey.Isolation  `yaml:"level"`     // of its sandboxes; default auto
}

func (c E2B) check(secure bool) error {
	bad := func(field, fix, format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, "use e2b."+field+" of the configuration", fix, format, args...)
	}
	if c.Domain != "" && !hostName(c.Domain) {
		return bad("domain", "write a name like sandboxes.example.com", "%q is no host name", c.Domain)
	}
	if c.Listen == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return bad("listen", "write HOST:PORT", "%w", err)
	}
	if !loopback(c.Listen) && !secure {
		return bad("listen", "set tls.cert and tls.key, tls.own, or domain", "keys would be readable on the way to %s", c.Listen)
	}
	return nil
}

// newE2B makes the front, if it is asked for.
func (s *Server) newE2B() error {
	c := s.opt.Config
	if c.E2B.Listen == "" {
		return nil
	}
	secret, err := e2b.Secret(s.opt.Home)
	if err != nil {
		return err
	}
	var ports http.Handler
	if s.opt.Ports != nil && c.E2B.Domain != "" {
		s.e2bPorts = ingress.New(ingress.Options{Engine: s.opt.Ports, Domain: c.E2B.Domain, Log: s.opt.Log})
		ports = s.e2bPorts
	}
	s.e2b = e2b.New(e2b.Options{Ports: ports, Engine: s.metrics.Observe(s.opt.Engine), Keys: s.opt.Keys, Log: s.opt.Log, Secret: secret, Domain: c.E2B.Domain, Reached: s.e2bReached,
		Templates: c.E2B.Templates, Allow: c.E2B.Allow, Level: c.E2B.Level, Upload: c.MaxUpload})
	return nil
}

// listenE2B listens for the front.
func (s *Server) listenE2B(ctx context.Context) (net.Listener, error) {
	c := s.opt.Config
	t := listen.TLS{Cert: c.TLS.Cert, Key: c.TLS.Key, Own: c.TLS.Own, Email: c.TLS.ACME.Email, Directory: c.TLS.ACME.Directory, Hosts: s.hosts(),
		Ports: strings.ToLower(strings.Trim(c.E2B.Domain, ".")), Decide: s.e2b.Decide}
	if host, _, err := net.SplitHostPort(c.E2B.Listen); err == nil && host != "" {
		t.Hosts = append(t.Hosts, host)
	}
	if t.Cert == "" && !t.Own && loopback(c.E2B.Listen) {
		t.Ports = "" // no authority reaches it: somebody before it has the certificate
	}
	l, err := s.listenTCP(ctx, c.E2B.Listen, t)
	if err == nil {
		at := l.Addr().String()
		s.e2bAt.Store(&at)
		if c.portsListen() == "" && c.E2B.Domain != "" && s.opt.PortAddress != nil {
			// Ports have no other address: they are here, for whoever asks.
			s.opt.PortAddress.set(strings.ToLower(strings.Trim(c.E2B.Domain, ".")), l.Addr(), t.Cert != "" || t.Own || t.Ports != "")
		}
	}
	return l, err
}

// e2bReached is the domain as the front's clients have to say it, "" for none.
func (s *Server) e2bReached() string {
	domain, at := strings.ToLower(strings.Trim(s.opt.Config.E2B.Domain, ".")), s.e2bAt.Load()
	if domain == "" || at == nil {
		return ""
	}
	if _, port, err := net.SplitHostPort(*at); err == nil && port != "443" {
		return domain + ":" + port
	}
	return domain
}
