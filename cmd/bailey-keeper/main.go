// Command bailey-keeper starts the daemon and holds what has to survive it.
//
//	bailey-keeper --home DIR -- baileyd serve …
//
// The daemon is started again when it dies; sandboxes live on meanwhile. SIGHUP
// starts it anew from the program that is on disk, which is an upgrade. SIGTERM and
// SIGINT are passed on: the daemon leaves, and the keeper with it. A daemon that
// leaves with status 0 while no sandbox lives ends the keeper, too.
//
// It exits with the daemon's status, with 125 when it could not start, and with 75
// when the data folder has a keeper, whose daemon answers or is being started again.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/keeper"
)

const usage = "usage: bailey-keeper --home DIR -- DAEMON [ARGUMENT…]"

// exitBusy is known to who starts a keeper (internal/cli/client).
const exitBusy = 75

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		fmt.Println(usage)
		return 0
	}
	home, command, err := parse(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bailey-keeper: %v; %s\n", err, usage)
		return bailey.ExitBailey
	}
	status, err := keeper.Run(keeper.Options{Home: home, Command: command, Log: os.Stderr})
	if err != nil {
		fmt.Fprintf(os.Stderr, "bailey-keeper: %v\n", err)
		if bailey.CodeOf(err) == bailey.CodeBusy {
			return exitBusy
		}
		return bailey.ExitBailey
	}
	return status
}

func parse(args []string) (home string, command []string, err error) {
	for len(args) > 0 && args[0] != "--" {
		name, value, inline := strings.Cut(args[0], "=")
		args = args[1:]
		if name != "--home" {
			return "", nil, fmt.Errorf("unknown option %q", name)
		}
		if !inline {
			if len(args) == 0 {
				return "", nil, errors.New("--home needs a folder")
			}
			value, args = args[0], args[1:]
		}
		home = value
	}
	if !filepath.IsAbs(home) {
		return "", nil, errors.New("--home needs an absolute path")
	}
	if len(args) < 2 {
		return "", nil, errors.New("there is no daemon to start")
	}
	return home, args[1:], nil
}
