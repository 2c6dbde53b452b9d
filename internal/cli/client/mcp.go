package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/cli/command"
	"github.com/bailey-sandbox/bailey/internal/server/mcp"
)

// leaseOfMCP is after how long a sandbox ends whose server was killed, and renewAfter
// how often the server says that it lives.
const (
	leaseOfMCP = 2 * time.Minute
	renewAfter = 30 * time.Second
)

// mcpCommand serves tools over standard input and output until its input ends.
func mcpCommand(inv *invocation) (int, error) {
	var f specFlags
	f.add(inv.Flags)
	ref := inv.Flags.String("sandbox", "", "work in this sandbox, which stays; default: one of its own, made at the first call")
	keep := inv.Flags.Bool("keep", false, "leave the sandbox of its own when this ends")
	if err := inv.Alone(); err != nil {
		return 0, err
	}
	spec, err := f.spec()
	if err != nil {
		return 0, err
	}
	if *ref != "" && inv.Flags.NFlag() > 1 {
		return 0, bailey.Errorf(bailey.CodeUsage, "run bailey mcp", "leave --sandbox or the others out", "a sandbox that is there already is as it is")
	}
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	own := &ownSandbox{c: c, spec: spec, keep: *keep, log: inv.Stderr}
	opt := mcp.Options{Client: c, Version: command.Version(), Sandbox: own.get}
	if *ref != "" {
		opt.Sandbox = func(context.Context) (*client.Sandbox, error) { return c.Sandbox(*ref), nil }
	}
	err = mcp.New(opt).Run(inv.ctx, &sdk.IOTransport{Reader: os.Stdin, Writer: stdout{}})
	if inv.ctx.Err() != nil || errors.Is(err, io.EOF) {
		err = nil // whoever started it has ended it
	}
	return 0, errors.Join(err, own.end())
}

// stdout is standard output, which stays open.
type stdout struct{}

func (stdout) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdout) Close() error                { return nil }

// ownSandbox is the sandbox of one server: made at the first call that needs it, and
// deleted with the server, by its lease also when that is killed.
type ownSandbox struct {
	c    *client.Client
	spec api.SandboxSpec
	keep bool
	log  io.Writer

	mu   sync.Mutex
	box  *client.Sandbox
	stop context.CancelFunc
	over sync.WaitGroup
}

func (o *ownSandbox) get(ctx context.Context) (*client.Sandbox, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.box != nil {
		return o.box, nil
	}
	if !o.keep && o.spec.Lease == nil {
		o.spec.Lease = &api.Lease{TTL: api.Duration(leaseOfMCP), Action: api.ActionKill}
		if o.spec.Timeout.IsZero() {
			o.spec.Timeout.Never = true // it lives as long as its owner
		}
	}
	box, err := o.c.Create(ctx, o.spec)
	if err != nil {
		return nil, err
	}
	o.box = box
	renewing, stop := context.WithCancel(context.Background())
	o.stop = stop
	o.over.Go(func() { o.renew(renewing, box) })
	return box, nil
}

// renew keeps the lease, until ctx ends.
func (o *ownSandbox) renew(ctx context.Context, box *client.Sandbox) {
	if o.spec.Lease == nil {
		return
	}
	tick := time.NewTicker(min(renewAfter, time.Duration(o.spec.Lease.TTL)/3))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := box.Renew(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(o.log, "bailey:", err)
		}
	}
}

// end deletes the sandbox, if there is one that is not to stay.
func (o *ownSandbox) end() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.box == nil {
		return nil
	}
	o.stop()
	o.over.Wait()
	if o.keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return o.box.Delete(ctx)
}
