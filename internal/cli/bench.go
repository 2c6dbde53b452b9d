package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench"
	"github.com/bailey-sandbox/bailey/internal/cli/command"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// benchCommand is `bailey bench run`, and leads to `bailey bench gate`, lifecycle and kernels. It exits with 0 when it could measure,
// whatever the numbers are; with --strict it exits with 1 when a target is missed.
func benchCommand(inv *invocation) (int, error) {
	if len(inv.Args) > 0 && slices.Contains([]string{"gate", "lifecycle", "kernels"}, inv.Args[0]) {
		// What is measured, and what it takes to measure it, baileyd has.
		inv.Args = slices.Insert(inv.Args, 1, "--as", command.Version())
		return delegateCommand(inv)
	}
	collectAsUsual() // as in the programs of those who use the library
	o := bench.Options{Version: command.Version()}
	strict := false
	fs := inv.Flags
	fs.SetInterspersed(true)
	fs.IntVarP(&o.Rounds, "rounds", "n", 200, "how often each subject is measured")
	fs.StringSliceVar(&o.Only, "only", nil, "measure only these: "+strings.Join(bench.Names(), ","))
	fs.IntVar(&o.Files, "files", 100_000, "files in the workspace of git-status")
	fs.IntVar(&o.GitRounds, "git-rounds", 20, "how often git-status is measured")
	fs.IntVar(&o.Idle, "idle", 500, "sandboxes at once in idle")
	fs.StringVar(&o.SRT, "srt", "", "the sandbox-runtime program (beside Bailey's source, or on PATH)")
	fs.BoolVar(&strict, "strict", false, "exit with 1 when a target is missed")
	fs.BoolVar(&inv.JSON, "json", false, "print one JSON object")
	args, err := inv.Parse()
	if err != nil {
		return 0, err
	}
	if len(args) != 1 || args[0] != "run" {
		return 0, bailey.Errorf(bailey.CodeUsage, "run bailey bench", "write: bailey bench run, gate, lifecycle or kernels", "there is nothing else it does")
	}
	if o.Bailey, err = os.Executable(); err != nil {
		return 0, bailey.Errorf(bailey.CodeNotAvailable, "find this program", "", "%w", err)
	}
	if o.Init, err = program("bailey-init"); err != nil {
		return 0, err
	}
	if o.Daemon, err = program("baileyd"); err != nil {
		return 0, err
	}
	f, err := folder.Open()
	if err != nil {
		return 0, err
	}
	if o.Parent, err = f.Cache(); err != nil {
		return 0, err
	}
	if terminal.Is(os.Stderr) {
		o.Progress = func(measure string, done, of int) {
			fmt.Fprintf(inv.Stderr, "\r\x1b[K%s: %d of %d\r", measure, done, of)
		}
		defer fmt.Fprint(inv.Stderr, "\r\x1b[K")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := bench.Run(ctx, o)
	if err != nil {
		return 0, err
	}
	code := 0
	if strict && report.Missed() > 0 {
		code = 1
	}
	if inv.JSON {
		return code, json.NewEncoder(inv.Stdout).Encode(report)
	}
	return code, report.Write(inv.Stdout)
}
