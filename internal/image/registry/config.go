package registry

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/bailey-sandbox/bailey"
)

// ConfigFile is the name of the configuration in the data folder.
const ConfigFile = "registry.yaml"

// maxConfigFile bounds the configuration in bytes.
const maxConfigFile = 1 << 20

// Config says where images come from. The zero Config fetches from the hosts
// that references name, with TLS, at public addresses.
type Config struct {
	// Registry is the HOST[:PORT] for references that name none; without it such
	// a reference is an error.
	Registry string `yaml:"registry"`
	// Mirrors are asked before the registry they stand for, in this order, under
	// the same name: HOST[:PORT].
	Mirrors map[string][]string `yaml:"mirrors"`
	// Insecure hosts may speak plain HTTP, and their certificates are not checked.
	Insecure []string `yaml:"insecure"`
	// Private hosts may lie at addresses that are not public, such as those of
	// this machine or its network. Registry, mirrors and insecure hosts may too.
	Private []string `yaml:"private"`
	// DockerConfig is the folder of the config.json with credentials; default is
	// DOCKER_CONFIG, or .docker in the home of who runs the daemon.
	DockerConfig string `yaml:"docker_config"`
}

// Load reads a configuration; a file that is not there is the zero Config.
func Load(path string) (Config, error) {
	var c Config
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		defer f.Close()
		var b []byte
		if b, err = io.ReadAll(io.LimitReader(f, maxConfigFile)); err == nil {
			return ParseConfig(b)
		}
	}
	return c, bailey.Errorf(bailey.CodeUsage, "read the registries' configuration", "", "%w", err)
}

// ParseConfig reads a configuration in YAML. Unknown words are errors.
func ParseConfig(b []byte) (Config, error) {
	var c Config
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, bailey.Errorf(bailey.CodeUsage, "read the registries' configuration", "see docs/images.md for its words", "%w", err)
	}
	return c, c.check()
}

func (c Config) check() error {
	hosts := slices.Concat(c.Insecure, c.Private)
	if c.Registry != "" {
		hosts = append(hosts, c.Registry)
	}
	for of, list := range c.Mirrors {
		hosts = append(append(hosts, of), list...)
	}
	for _, h := range hosts {
		if u, err := url.Parse("//" + h); err != nil || h == "" || u.Host != h {
			return bailey.Errorf(bailey.CodeUsage, "read the registries' configuration", "write HOST or HOST:PORT", "%q is no host", h)
		}
	}
	return nil
}

func (c Config) insecure(host string) bool { return slices.Contains(c.Insecure, host) }

// private says whether the host was named by the configuration, so that it may
// have an address that is not public. The port does not matter.
func (c Config) private(host string) bool {
	name := hostname(host)
	same := func(h string) bool { return hostname(h) == name }
	if c.Registry != "" && same(c.Registry) || slices.ContainsFunc(c.Insecure, same) || slices.ContainsFunc(c.Private, same) {
		return true
	}
	for _, list := range c.Mirrors {
		if slices.ContainsFunc(list, same) {
			return true
		}
	}
	return false
}

func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}
