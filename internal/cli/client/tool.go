package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/agenttools"
)

// toolCommand serves a vendor's tools over standard input and output, or answers one call.
func toolCommand(inv *invocation) (int, error) {
	var f specFlags
	f.add(inv.Flags)
	ref := inv.Flags.String("sandbox", "", "work in this sandbox, which stays; default: one of its own, made at the first call")
	keep := inv.Flags.Bool("keep", false, "leave the sandbox of its own when this ends")
	schema := inv.Flags.Bool("schema", false, "print what a request to the vendor's API has under tools")
	args, err := inv.some(1, 2, "VENDOR [CALL]")
	if err != nil {
		return 0, err
	}
	spec, err := f.spec()
	if err != nil {
		return 0, err
	}
	own := &ownSandbox{spec: spec, keep: *keep, log: inv.Stderr}
	get := own.get
	if *ref != "" {
		get = func(context.Context) (*client.Sandbox, error) { return own.c.Sandbox(*ref), nil }
	}
	t, err := agenttools.Vendor(args[0], get)
	if err != nil {
		return 0, err
	}
	if *schema {
		_, err := fmt.Fprintln(inv.Stdout, t.Schema())
		return 0, err
	}
	if *ref != "" && inv.Flags.NFlag() > 1 {
		return 0, bailey.Errorf(bailey.CodeUsage, "run bailey tool", "leave --sandbox or the others out", "a sandbox that is there already is as it is")
	}
	if own.c, err = inv.connect(); err != nil {
		return 0, err
	}
	defer own.c.Close()
	var calls io.Reader = os.Stdin
	if len(args) == 2 {
		calls = strings.NewReader(args[1])
	}
	err = t.Serve(inv.ctx, calls, inv.Stdout)
	if inv.ctx.Err() != nil {
		err = nil // whoever started it has ended it
	}
	return 0, errors.Join(err, own.end())
}
