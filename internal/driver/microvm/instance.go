package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/cell"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// instance is a sandbox: its cell, and what is different about it.
type instance struct {
	driver.Instance
	c *aCell

	once sync.Once
	end  bailey.End
}

// staying is one that can be handed on.
type staying struct {
	*instance
	outer driver.Staying
}

func (c *aCell) instance(in driver.Instance) driver.Instance {
	i := &instance{Instance: in, c: c}
	if s, ok := in.(driver.Staying); ok && c.agent != "" {
		return &staying{i, s}
	}
	return i
}

// End says how it ended.
func (in *instance) End() bailey.End {
	select {
	case <-in.Done():
	default:
		return bailey.End{}
	}
	in.once.Do(func() {
		in.end = in.Instance.End()
		if in.c.agent == "" {
			in.end = judge(in.end, filepath.Join(in.c.dir, endName))
		}
	})
	return in.end
}

// Destroy ends the sandbox and removes the cell's folder.
func (in *instance) Destroy(ctx context.Context) error {
	if err := in.Instance.Destroy(ctx); err != nil {
		return err
	}
	in.End() // while what it is read from is there
	if err := os.RemoveAll(in.c.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return bailey.Errorf(bailey.CodeStorage, "remove the cell's folder", "", "%w", err)
	}
	return nil
}

// judge says how a command ended, from how its cell did and what bailey-vmm wrote.
func judge(e bailey.End, path string) bailey.End {
	if e.Reason != bailey.EndExit {
		return e
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err == nil {
		defer f.Close()
		var b []byte
		if b, err = io.ReadAll(io.LimitReader(f, maxEnd)); err == nil {
			return told(e, b)
		}
	}
	e.Reason, e.ExitCode, e.Detail = bailey.EndHostLost, 137, "the virtual machine did not say how its command ended"
	return e
}

const maxEnd = 8 << 10

// told takes over what bailey-vmm said. It is of the cell, and may say what it wants:
// about its own command, and in so many words.
func told(e bailey.End, b []byte) bailey.End {
	var t struct {
		Reason   bailey.Reason `json:"reason"`
		ExitCode int           `json:"exit_code"`
		Signal   string        `json:"signal"`
		Detail   string        `json:"detail"`
	}
	err := json.Unmarshal(b, &t)
	switch t.Reason {
	case bailey.EndExit, bailey.EndSignal, bailey.EndNotStarted, bailey.EndHostLost:
	default:
		err = os.ErrInvalid
	}
	if err != nil || t.ExitCode < 0 || t.ExitCode > 255 || !printable(t.Signal, 32) || !printable(t.Detail, 1024) {
		e.Reason, e.ExitCode, e.Detail = bailey.EndHostLost, 137, "what the virtual machine says about its command's end makes no sense"
		return e
	}
	e.Reason, e.ExitCode, e.Signal, e.Detail = t.Reason, t.ExitCode, t.Signal, t.Detail
	return e
}

func printable(s string, most int) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return false
		}
	}
	return len(s) <= most
}

// Record is the cell's, at this level.
func (in *staying) Record() driver.Record {
	r := in.outer.Record()
	r.Level = bailey.IsolationMicroVM
	return r
}

func (in *staying) Held() map[string]*os.File { return in.outer.Held() }
func (in *staying) Release()                  { in.outer.Release() }

// Attach is not there: the machine's root is one file system, and what is mounted in it
// later would be seen only as far as nothing remembers what was there.
func (in *staying) Attach(_ context.Context, p driver.Place) error {
	return bailey.Errorf(bailey.CodeNotAvailable, "show "+p.Source+" at "+p.Target, "name it when the sandbox is made", "a virtual machine that runs is shown nothing more in this version")
}

// Dial connects to a port through the cell, which has bailey-init inside do it.
func (in *staying) Dial(ctx context.Context, port int) (net.Conn, error) {
	what := "reach a port of the sandbox"
	a, f, err := cell.Ask(ctx, filepath.Join(in.c.dir, controlName), cell.Request{Act: cell.ActDial, Port: port})
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, what, "", "its cell does not answer: %w", err)
	}
	if f == nil {
		err := errors.New("the cell gave nothing")
		if a.Failed != nil {
			if err = errors.New(a.Failed.Why); a.Failed.Refused {
				err = syscall.ECONNREFUSED
			}
		}
		return nil, bailey.Errorf(bailey.CodeNotAvailable, what, "start a server at it inside", "port %d: %w", port, err)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeInternal, what, "", "%w", err)
	}
	return c, nil
}
