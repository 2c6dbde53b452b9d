package cell

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Config says what a cell is. Unknown fields are errors.
type Config struct {
	// Inner is the program with the kernel, and its arguments: an absolute path first. Env
	// is its whole environment, Dir its folder ("/" when empty).
	Inner []string `json:"inner"`
	Env   []string `json:"env,omitempty"`
	Dir   string   `json:"dir,omitempty"`
	// Stream says how bailey-init inside is reached: StreamStdio, the default, by two pipes
	// that are the program's descriptors 0 and 1; StreamSocket by a unix stream socket, its
	// descriptor 3.
	Stream string `json:"stream,omitempty"`
	// Restored says that the inside has lived before: what it runs is followed, so that
	// it does not stand still for want of a reader.
	Restored bool `json:"restored,omitempty"`
	// StartWithin bounds the time until bailey-init inside answers, in seconds; 0 is 120.
	StartWithin int `json:"start_within,omitempty"`
	// Log is a file for what the program writes to its standard error, of which the
	// first and the last part are kept: see logBound. "" keeps the last part in memory only.
	Log string `json:"log,omitempty"`
	// Init is the path of bailey-init inside, by which ports are dialled; "" cannot.
	Init string `json:"init,omitempty"`
	// Signal, for Once, is a program that hands a signal to what is inside, for an inner program
	// that would only end by one: an absolute path first; the signal's number is
	// appended. Without it the inner program gets signals itself.
	Signal []string `json:"signal,omitempty"`
	// Control is the path of the socket for Control, in a folder that only whoever built
	// the cell can enter from outside; "" is none.
	Control string `json:"control,omitempty"`
}

// The values of Config.Stream.
const (
	StreamStdio  = "stdio"
	StreamSocket = "socket"
)

// maxConfig bounds the file, in bytes: command lines included.
const maxConfig = 1 << 20

// Load reads the configuration in a file.
func Load(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, configError(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(b) > maxConfig {
		err = errors.New("it is larger than 1 MiB")
	}
	if err != nil {
		return Config{}, configError(err)
	}
	return Parse(b)
}

// Parse reads a configuration.
func Parse(b []byte) (c Config, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Config{}, configError(err)
	}
	if d.More() {
		return Config{}, configError(errors.New("there is something after it"))
	}
	return c, c.check()
}

func configError(err error) error {
	return bailey.Errorf(bailey.CodeUsage, "read what the cell is", "", "%w", err)
}

func (c *Config) check() error {
	for _, s := range slices.Concat([]string{c.Dir, c.Log, c.Init, c.Control}, c.Inner, c.Env, c.Signal) {
		if strings.IndexByte(s, 0) >= 0 {
			return configError(errors.New("a NUL byte is in it"))
		}
	}
	for _, p := range []string{c.Dir, c.Log, c.Init, c.Control} {
		if p != "" && p[0] != '/' {
			return configError(errors.New("a path in it is not absolute"))
		}
	}
	switch {
	case len(c.Inner) == 0 || !strings.HasPrefix(c.Inner[0], "/"):
		return configError(errors.New("the inner program is no absolute path"))
	case len(c.Signal) > 0 && !strings.HasPrefix(c.Signal[0], "/"):
		return configError(errors.New("the program that hands signals on is no absolute path"))
	case c.Stream != "" && c.Stream != StreamStdio && c.Stream != StreamSocket:
		return configError(errors.New("there is no such stream"))
	case c.StartWithin < 0 || c.StartWithin > 3600:
		return configError(errors.New("start_within is not between 0 and 3600 seconds"))
	}
	return nil
}

// startWithin is the time that the inside has to answer.
func (c *Config) startWithin() time.Duration {
	if c.StartWithin == 0 {
		return 120 * time.Second
	}
	return time.Duration(c.StartWithin) * time.Second
}
