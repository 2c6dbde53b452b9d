package server

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Config is the daemon's configuration file, YAML. Unknown fields are errors, and
// docs/operate.md describes each.
type Config struct {
	// Listen is an address for TCP, such as 127.0.0.1:7777 or :443; none is the unix
	// socket only. What is no loopback address needs TLS.
	Listen string `yaml:"listen"`
	// Metrics is an address at which /metrics is served without a key; loopback only.
	Metrics string `yaml:"metrics"`
	TLS     struct {
		Cert string `yaml:"cert"` // PEM files
		Key  string `yaml:"key"`
		Own  bool   `yaml:"own"` // by an authority in the data folder
		ACME struct {
			Email     string `yaml:"email"`
			Directory string `yaml:"directory"`
		} `yaml:"acme"`
	} `yaml:"tls"`
	Domain    string        `yaml:"domain"` // by ACME unless tls says otherwise; ports are below it
	Ports     Ports         `yaml:"ports"`
	E2B       E2B           `yaml:"e2b"`
	Hosts     []string      `yaml:"hosts"`      // more names that the daemon is reached by
	Origins   []string      `yaml:"origins"`    // web pages that may ask
	MaxUpload int64         `yaml:"max_upload"` // bytes of one body; 0 is no bound
	Rate      float64       `yaml:"rate"`       // requests a second and key; default 50
	Drain     time.Duration `yaml:"drain"`      // how long requests may take to end at a shutdown; default 30s
	Quota     struct {
		All  Quota `yaml:"all"`
		Each Quota `yaml:"each"`
	} `yaml:"quota"`
	// Warm are sandboxes that are kept ready, beside those that templates ask for.
	Warm []struct {
		Template string           `yaml:"template"` // default host
		Level    bailey.Isolation `yaml:"level"`    // auto if it is not said
		Count    int              `yaml:"count"`
	} `yaml:"warm"`
	Webhooks struct {
		Allow []string `yaml:"allow"` // networks beside the public internet
	} `yaml:"webhooks"`
	Log struct {
		Level  string `yaml:"level"`  // debug, info, warn, error; default info
		Format string `yaml:"format"` // text or json; default text
	} `yaml:"log"`
}

// Quota is an api.Quota as the file has it.
type Quota struct {
	Sandboxes  int           `yaml:"sandboxes"`
	Running    int           `yaml:"running"`
	CPUs       float64       `yaml:"cpus"`
	Memory     int64         `yaml:"memory"`
	Disk       int64         `yaml:"disk"`
	MaxTimeout time.Duration `yaml:"max_timeout"`
}

func (q Quota) api() api.Quota {
	return api.Quota{Sandboxes: q.Sandboxes, Running: q.Running, CPUs: q.CPUs, Memory: q.Memory, Disk: q.Disk, MaxTimeout: api.Duration(q.MaxTimeout)}
}

// Quotas are those of all owners together, and of one that has none of its own.
func (c Config) Quotas() (all, each api.Quota) { return c.Quota.All.api(), c.Quota.Each.api() }

// DrainTime is how long what is under way may take to end.
func (c Config) DrainTime() time.Duration {
	if c.Drain == 0 {
		return 30 * time.Second
	}
	return c.Drain
}

// ReadConfig reads a configuration file. The zero Config is what a missing file
// says, if it may be missing.
func ReadConfig(name string, mayMiss bool) (Config, error) {
	var c Config
	text, err := os.ReadFile(name)
	if os.IsNotExist(err) && mayMiss {
		return c, nil
	}
	if err == nil {
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		if err = d.Decode(&c); errors.Is(err, io.EOF) {
			err = nil // an empty file
		} else if err == nil && !errors.Is(d.Decode(&c), io.EOF) {
			err = errors.New("it has more than one document")
		}
	}
	if err != nil {
		return c, bailey.Errorf(bailey.CodeUsage, "read the configuration "+name, "see docs/operate.md", "%w", err)
	}
	return c, nil
}

// Check refuses a configuration that makes no sense.
func (c Config) Check() error {
	bad := func(field, fix, format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, "use "+field+" of the configuration", fix, format, args...)
	}
	t := c.TLS
	switch {
	case (t.Cert == "") != (t.Key == ""):
		return bad("tls", "give both", "cert and key belong together")
	case t.Cert != "" && t.Own:
		return bad("tls", "choose one", "a given certificate and an own one exclude each other")
	case c.MaxUpload < 0 || c.Rate < 0 || c.Drain < 0:
		return bad("max_upload, rate or drain", "use 0 for the default", "it is less than 0")
	case !slices.Contains([]string{"", "text", "json"}, c.Log.Format):
		return bad("log.format", "use text or json", "there is no format %q", c.Log.Format)
	}
	for _, q := range []Quota{c.Quota.All, c.Quota.Each} {
		if q.Sandboxes < 0 || q.Running < 0 || q.CPUs < 0 || q.Memory < 0 || q.Disk < 0 || q.MaxTimeout < 0 {
			return bad("quota", "use 0 for no bound", "a bound is less than 0")
		}
	}
	if _, err := c.level(); err != nil {
		return err
	}
	if _, err := c.allow(); err != nil {
		return err
	}
	if _, err := c.PortTCP(); err != nil {
		return err
	}
	if err := c.E2B.check(c.secure()); err != nil {
		return err
	}
	if d := c.Ports.Domain; d != "" && !hostName(d) {
		return bad("ports.domain", "write a name like ports.example.com", "%q is no host name", d)
	}
	if c.Ports.Listen != "" && c.PortsDomain() == "" {
		return bad("ports.listen", "set ports.domain, or domain", "there is no name below which ports could be")
	}
	for field, address := range map[string]string{"listen": c.Listen, "metrics": c.Metrics, "ports.listen": c.Ports.Listen} {
		if address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return bad(field, "write HOST:PORT", "%w", err)
		}
	}
	if c.Metrics != "" && !loopback(c.Metrics) {
		return bad("metrics", "use 127.0.0.1:PORT, or /metrics with a key", "whoever reaches %s would see them without a key", c.Metrics)
	}
	if c.Listen != "" && !loopback(c.Listen) && !c.secure() {
		return bad("listen", "set tls.cert and tls.key, tls.own, or domain", "keys would be readable on the way to %s", c.Listen)
	}
	if c.Ports.Listen != "" && !loopback(c.Ports.Listen) && !c.secure() && c.Ports.Domain == "" {
		return bad("ports.listen", "set tls.cert and tls.key, tls.own, domain or ports.domain", "tokens would be readable on the way to %s", c.Ports.Listen)
	}
	return nil
}

func (c Config) secure() bool { return c.TLS.Cert != "" || c.TLS.Own || c.Domain != "" }

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c Config) level() (slog.Level, error) {
	var l slog.Level
	if c.Log.Level == "" {
		return l, nil
	}
	if err := l.UnmarshalText([]byte(c.Log.Level)); err != nil {
		return l, bailey.Errorf(bailey.CodeUsage, "use log.level of the configuration", "use debug, info, warn or error", "%w", err)
	}
	return l, nil
}

func (c Config) allow() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range c.Webhooks.Allow {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, bailey.Errorf(bailey.CodeUsage, "use webhooks.allow of the configuration", "write networks like 10.1.0.0/16", "%w", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// Logger makes the daemon's log.
func (c Config) Logger(w io.Writer) *slog.Logger {
	l, err := c.level()
	if err != nil {
		l = slog.LevelInfo // Check has refused it
	}
	opt := &slog.HandlerOptions{Level: l}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}
