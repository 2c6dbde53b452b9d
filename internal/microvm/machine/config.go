package machine

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// Config says what a machine is. Unknown fields are errors. Paths are those of
// the process that runs it.
type Config struct {
	Monitor   string `json:"monitor"`   // the monitor's program
	Firmware  string `json:"firmware"`  // a folder for -L; "" is the monitor's own
	Vmlinux   string `json:"vmlinux"`   // the kernel
	Initramfs string `json:"initramfs"` // its first file system
	// Root is the folder that is the machine's root; Live are places below it that
	// others change as well, as the machine sees them.
	Root string   `json:"root"`
	Live []string `json:"live,omitempty"`
	// Memory is in bytes, a multiple of 1 MiB, 64 MiB at least.
	Memory int64 `json:"memory"`
	CPUs   int   `json:"cpus"` // 1 to 64
	// Pids bounds the processes inside; 0 is no bound but the kernel's.
	Pids int64  `json:"pids,omitempty"`
	Host string `json:"host"` // its host name
	Card bool   `json:"card,omitempty"`
	// KVM uses the processor's own virtualisation; without it all is emulated.
	KVM bool `json:"kvm,omitempty"`
	// RAM is a file for the machine's memory, in a file system that is memory itself; with
	// it the machine can be suspended. "" keeps it to the monitor.
	RAM string `json:"ram,omitempty"`
	// Console writes what the kernel says to the standard error.
	Console bool `json:"console,omitempty"`
}

const maxConfig = 1 << 20

// Load reads the configuration in a file.
func Load(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, configError("%w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return Config{}, configError("%w", err)
	}
	return Parse(b)
}

// Parse reads a configuration.
func Parse(b []byte) (c Config, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Config{}, configError("%w", err)
	}
	return c, c.Check()
}

func configError(format string, args ...any) error {
	return bailey.Errorf(bailey.CodeUsage, "read what the virtual machine is", "", format, args...)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,63}$`)

// minMemory is what the kernel and bailey-init need.
const minMemory = 64 << 20

// Check reports the first thing that cannot be.
func (c *Config) Check() error {
	for _, p := range []string{c.Monitor, c.Vmlinux, c.Initramfs, c.Root} {
		if !filepath.IsAbs(p) {
			return configError("%q is no absolute path", p)
		}
	}
	for _, p := range append([]string{c.Monitor, c.Firmware, c.Vmlinux, c.Initramfs, c.Root, c.RAM}, c.Live...) {
		// The monitor takes commas for the end of a value.
		if strings.ContainsAny(p, ",\x00\n") {
			return configError("a path of the machine has a comma, a NUL byte or a line's end in it: %q", p)
		}
	}
	switch {
	case c.Memory < minMemory || c.Memory&(1<<20-1) != 0:
		return configError("%d bytes of memory are no multiple of 1 MiB from 64 MiB on", c.Memory)
	case c.CPUs < 1 || c.CPUs > 64:
		return configError("%d processors are not between 1 and 64", c.CPUs)
	case c.Pids < 0:
		return configError("%d processes are less than none", c.Pids)
	case !hostName.MatchString(c.Host):
		return configError("%q is no host name", c.Host)
	}
	return nil
}
