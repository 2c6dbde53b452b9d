package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// A command gets the arguments behind its name and gives an exit status.
type command func(ctx context.Context, args []string, stdout, stderr io.Writer) int

var commands = map[string]command{
	"audit":   auditCommand,
	"bench":   benchCommand,
	"gate":    gateCommand,
	"image":   imageCommand,
	"openapi": openapiCommand,
	"policy":  policyCommand,
	"secret":  secretCommand,
	"serve":   serveCommand,
	"vault":   vaultCommand,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		if c := commands[args[0]]; c != nil {
			return c(ctx, args[1:], stdout, stderr)
		}
	}
	fmt.Fprint(stderr, imageUsage)
	return bailey.ExitBailey
}

func fail(w io.Writer, asJSON bool, err error) int {
	var own *bailey.Error
	if !errors.As(err, &own) {
		code := bailey.CodeInternal
		if errors.Is(err, context.Canceled) {
			err, code = errors.New("it was interrupted"), bailey.CodeBusy
		}
		own = bailey.Errorf(code, "run "+filepath.Base(os.Args[0]), "try again", "%w", err)
	}
	if asJSON {
		_ = json.NewEncoder(w).Encode(own) // nowhere is left to report to
	} else {
		fmt.Fprintln(w, filepath.Base(os.Args[0])+":", own) // bailey, where that has become this program
	}
	return bailey.ExitBailey
}
