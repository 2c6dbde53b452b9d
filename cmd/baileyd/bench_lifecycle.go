package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench/lifebench"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

const benchLifecycleUsage = `Usage: bailey bench lifecycle [flags]

Measures sandboxes that stay, from create to delete, with a daemon of their own,
beside crun. It exits with 0 when it could measure, whatever the numbers are.

`

const benchKernelsUsage = `Usage: bailey bench kernels [flags]

Measures the levels that have a kernel of their own, with a daemon of their own, beside
runsc's command line and a plain boot of the same kernel. It exits with 0 when it could
measure, whatever the numbers are.

`

// benchLifecycle is `bailey bench lifecycle`, and `bailey bench kernels`.
func benchLifecycle(ctx context.Context, ofKernels bool, args []string, stdout, stderr io.Writer) int {
	o, name, usage := lifebench.Defaults(), "bench lifecycle", benchLifecycleUsage
	if ofKernels {
		o, name, usage = lifebench.KernelDefaults(), "bench kernels", benchKernelsUsage
	}
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	quick := false
	if ofKernels {
		fs.IntVar(&o.Turns, "turns", o.Turns, "of each subject")
		fs.IntVar(&o.Execs, "execs", o.Execs, "commands in one sandbox, one after the other")
	} else {
		fs.BoolVar(&quick, "quick", false, "half a minute: fewer of everything that is not said otherwise")
		fs.IntVarP(&o.Rounds, "rounds", "n", o.Rounds, "sandboxes of each subject: one after the other, staggered, at once")
		fs.DurationVar(&o.Stagger, "stagger", o.Stagger, "between two beginnings, staggered")
		fs.IntVar(&o.Turns, "turns", o.Turns, "forks, snapshots, pauses and resumes of each kind")
		fs.IntVar(&o.Execs, "execs", o.Execs, "commands in one sandbox, one after the other and 50 at once")
		fs.IntVar(&o.Files, "files", o.Files, "files in the largest tree")
		fs.IntVar(&o.Idle, "idle", o.Idle, "idle sandboxes at once, at most; 10, 100 … are measured")
	}
	fs.DurationVar(&o.Watch, "watch", o.Watch, "how long processor time is watched")
	fs.DurationVar(&o.Limit, "limit", o.Limit, "what all may take together: turns are left out to keep it")
	fs.StringSliceVar(&o.Only, "only", nil, "measure only these: "+strings.Join(lifebench.Names(ofKernels), ","))
	fs.StringVar(&o.Profile, "profile", "", "write the daemon's processor profile to this file")
	fs.StringVar(&o.Version, "as", buildVersion(), "the version in the report")
	strict := fs.Bool("strict", false, "exit with 1 when a target is missed")
	asJSON := fs.Bool("json", false, "print one JSON object")
	help := fs.BoolP("help", "h", false, "print this text")
	err := fs.Parse(args)
	if *help {
		fmt.Fprint(stdout, usage, "Flags:\n", fs.FlagUsages())
		return 0
	}
	if err == nil && fs.NArg() != 0 {
		err = fmt.Errorf("it takes no argument, and has %q", fs.Arg(0))
	}
	if err != nil {
		return fail(stderr, *asJSON, bailey.Errorf(bailey.CodeUsage, "run bailey "+name, "see bailey "+name+" --help", "%w", err))
	}
	if quick {
		o = quicker(o, fs.Changed)
	}
	if terminal.Is(os.Stderr) {
		o.Progress = func(measure string, done, of int) { fmt.Fprintf(stderr, "\r\x1b[K%s: %d of %d\r", measure, done, of) }
		defer fmt.Fprint(stderr, "\r\x1b[K")
	}
	r, err := lifebench.Run(ctx, o)
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

// quicker takes what was not said from lifebench.Quick.
func quicker(o lifebench.Options, said func(flag string) bool) lifebench.Options {
	q := lifebench.Quick()
	for _, f := range []struct {
		flag     string
		to, from *int
	}{{"rounds", &o.Rounds, &q.Rounds}, {"turns", &o.Turns, &q.Turns}, {"execs", &o.Execs, &q.Execs}, {"files", &o.Files, &q.Files}, {"idle", &o.Idle, &q.Idle}} {
		if !said(f.flag) {
			*f.to = *f.from
		}
	}
	if !said("watch") {
		o.Watch = q.Watch
	}
	if !said("limit") {
		o.Limit = q.Limit
	}
	return o
}
