package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench/gatebench"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

const benchUsage = `Usage: bailey bench gate [flags]

Measures the gate beside others on this machine, turn by turn. It exits with 0
when it could measure, whatever the numbers are.

`

// benchCommand is `bailey bench gate`, and the parts of it that run as processes
// of their own.
func benchCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 2 && args[0] == gatebench.Inside {
		return report(stderr, gatebench.RunInside(ctx, args[1], stdout, stderr))
	}
	if len(args) == 1 && args[0] != "gate" && args[0] != "lifecycle" && args[0] != "kernels" && !strings.HasPrefix(args[0], "-") {
		return report(stderr, gatebench.Servant(args[0], os.Stdin, stdout))
	}
	if len(args) > 0 && (args[0] == "lifecycle" || args[0] == "kernels") {
		return benchLifecycle(ctx, args[0] == "kernels", args[1:], stdout, stderr)
	}
	o := gatebench.Defaults()
	fs := pflag.NewFlagSet("bench gate", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVarP(&o.Rounds, "rounds", "n", o.Rounds, "how often each subject makes requests")
	fs.DurationVar(&o.Slot, "slot", o.Slot, "how long one turn takes, for each of rate and latency")
	fs.IntVar(&o.Workers, "workers", o.Workers, "requests at once, for the rate")
	fs.IntVar(&o.Downloads, "downloads", o.Downloads, "how often each subject downloads")
	fs.Int64Var(&o.Size, "size", o.Size, "bytes of a download")
	fs.IntVar(&o.Rules, "rules", o.Rules, "rules of the policy that decides")
	fs.IntVar(&o.Sandboxes, "sandboxes", o.Sandboxes, "sandboxes of one gate process")
	fs.StringSliceVar(&o.Only, "only", nil, "measure only these: "+strings.Join(gatebench.Names(), ","))
	fs.StringVar(&o.Version, "as", buildVersion(), "the version in the report")
	strict := fs.Bool("strict", false, "exit with 1 when a target is missed")
	asJSON := fs.Bool("json", false, "print one JSON object")
	help := fs.BoolP("help", "h", false, "print this text")
	err := fs.Parse(args)
	if *help {
		fmt.Fprint(stdout, benchUsage, "Flags:\n", fs.FlagUsages())
		return 0
	}
	if err == nil && (fs.NArg() != 1 || fs.Arg(0) != "gate") {
		err = fmt.Errorf("there is nothing else it does here")
	}
	if err != nil {
		return fail(stderr, *asJSON, bailey.Errorf(bailey.CodeUsage, "run bailey bench", "write: bailey bench run, gate, lifecycle or kernels", "%w", err))
	}
	o.Tell = terminal.Is(os.Stderr)
	r, err := gatebench.Run(ctx, o, stderr)
	if o.Tell {
		fmt.Fprint(stderr, "\r\x1b[K")
	}
	if err != nil {
		return fail(stderr, *asJSON, err)
	}
	if *asJSON {
		err = json.NewEncoder(stdout).Encode(r)
	} else {
		err = r.Write(stdout)
	}
	switch {
	case err != nil:
		return fail(stderr, *asJSON, err)
	case *strict && r.Missed() > 0:
		return 1
	}
	return 0
}

// report ends a part of the benchmark.
func report(stderr io.Writer, err error) int {
	if err != nil {
		fmt.Fprintln(stderr, err)
		return bailey.ExitBailey
	}
	return 0
}

func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "development"
}
