package gvisor

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/cell"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// staying is a sandbox that stays. All that bailey-init is asked goes through
// Agent; what the kernel's side is asked, through the cell's control.
type staying struct {
	*instance
	outer driver.Staying
	d     *Driver
}

var _ driver.Staying = (*staying)(nil)

// Record gives what Adopt needs.
func (in *staying) Record() driver.Record {
	r := in.outer.Record()
	r.Level = bailey.IsolationGVisor
	return r
}

func (in *staying) Held() map[string]*os.File { return in.outer.Held() }
func (in *staying) Release()                  { in.outer.Release() }

// Attach is not to be had: gVisor's file server has the mounts that it began with.
func (in *staying) Attach(_ context.Context, p driver.Place) error {
	return bailey.Errorf(bailey.CodeNotAvailable, "show "+p.Source+" at "+p.Target, "make the sandbox with the mount, or use the level container",
		"a sandbox of the level gvisor cannot be shown more while it runs")
}

// Dial connects to a port inside by way of the cell, which has bailey-init do it.
func (in *staying) Dial(ctx context.Context, port int) (net.Conn, error) {
	what := fmt.Sprintf("connect to port %d of the sandbox", port)
	if port < 1 || port > 65535 {
		return nil, bailey.Errorf(bailey.CodeUsage, "connect to a port of the sandbox", "use 1 to 65535", "%d is no port", port)
	}
	select {
	case <-in.Done():
		return nil, bailey.Errorf(bailey.CodeSandboxLost, what, "", "it has ended")
	default:
	}
	a, f, err := cell.Ask(ctx, filepath.Join(in.dir, controlName), cell.Request{Act: cell.ActDial, Port: port})
	switch {
	case err != nil:
		return nil, bailey.Errorf(bailey.CodeNotAvailable, what, "", "the cell does not answer: %w", err)
	case a.Failed != nil && a.Failed.Refused:
		err = syscall.ECONNREFUSED
	case a.Failed != nil:
		err = fmt.Errorf("%q", a.Failed.Why)
	case f == nil:
		err = fmt.Errorf("the cell gives no connection")
	}
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, bailey.Errorf(bailey.CodeNotAvailable, what, "", "%w", err)
	}
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
	}
	return conn, nil
}
