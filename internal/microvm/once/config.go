package once

import (
	"bytes"
	"encoding/json"
	"io"
	"os"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/microvm/machine"
)

// Config says what is run. Unknown fields are errors.
type Config struct {
	Machine machine.Config `json:"machine"`
	Command []string       `json:"command"`
	Env     []string       `json:"env"`
	Workdir string         `json:"workdir"`
	UID     uint32         `json:"uid"`
	GID     uint32         `json:"gid"`
	// Terminal gives the command a terminal of its own; descriptor 0 is then the
	// one that it is joined with. StderrApart leaves its standard error out of it.
	Terminal    bool `json:"terminal,omitempty"`
	StderrApart bool `json:"stderr_apart,omitempty"`
	// End is the file that gets how it ended, an End as JSON.
	End string `json:"end"`
}

// End is how a command ended, or why there was none.
type End struct {
	Reason   bailey.Reason `json:"reason"` // exit, signal, not_started or host_lost
	ExitCode int           `json:"exit_code"`
	Signal   string        `json:"signal,omitempty"`
	Detail   string        `json:"detail,omitempty"`
}

const maxConfig = 4 << 20

// Load reads the configuration in a file.
func Load(path string) (c Config, err error) {
	bad := func(err error) (Config, error) {
		return Config{}, bailey.Errorf(bailey.CodeUsage, "read what is to be run in the virtual machine", "", "%w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return bad(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return bad(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return bad(err)
	}
	if len(c.Command) == 0 || len(c.Workdir) == 0 || c.Workdir[0] != '/' {
		return bad(os.ErrInvalid)
	}
	return c, c.Machine.Check()
}

// maxEnd bounds an End's file, in bytes, and its texts.
const maxEnd = 8 << 10

// ReadEnd reads what Run wrote. The file comes from within a cell: what makes no sense is
// an error, and only what can be is given.
func ReadEnd(r io.Reader) (End, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxEnd))
	if err != nil {
		return End{}, err
	}
	return ParseEnd(b)
}

// ParseEnd is ReadEnd of bytes.
func ParseEnd(b []byte) (e End, err error) {
	if err := json.Unmarshal(b, &e); err != nil {
		return End{}, err
	}
	switch e.Reason {
	case bailey.EndExit, bailey.EndSignal, bailey.EndNotStarted, bailey.EndHostLost:
	default:
		return End{}, os.ErrInvalid
	}
	if e.ExitCode < 0 || e.ExitCode > 255 || len(e.Signal) > 32 || len(e.Detail) > maxEnd {
		return End{}, os.ErrInvalid
	}
	for _, s := range []string{e.Signal, e.Detail} {
		for _, r := range s {
			if r < ' ' || r == 0x7f {
				return End{}, os.ErrInvalid
			}
		}
	}
	return e, nil
}
