//go:build linux && (amd64 || arm64)

// Command bailey-cell is the first process of a cell: it starts the program with the kernel
// and relays the guest protocol between the sandbox's owner and bailey-init inside (package internal/cell).
//
//	bailey-cell [--fd N] [--lease] CONFIG
//	bailey-cell run CONFIG
//
// CONFIG is a file as cell.Config describes it. --fd names an inherited end of a unix socket pair,
// 3 by default. With --lease the cell lives as long as that connection, as bailey-init does. It exits 0 after a
// shutdown that was asked for or the end of the lease, 2 when it could not start, 70 when what is inside broke the
// protocol, 71 when nothing in it answered, 72 when the program ended well unasked, and otherwise as the program did.
//
// With run the program has the caller's own descriptors, and its exit code is this one's.
package main

import (
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/cell"
)

const usage = "usage: bailey-cell [--fd N] [--lease] CONFIG | bailey-cell run CONFIG\n"

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	debug.SetMaxStack(4 << 20)
	// What runs below this process has no business in its memory and descriptors.
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if len(args) == 2 && args[0] == "run" {
		cfg, err := cell.Load(args[1])
		if err != nil {
			return fail(err)
		}
		return cell.Once(cfg, os.Stderr)
	}
	fd, lease := 3, false
	for len(args) > 0 && args[0] != "" && args[0][0] == '-' {
		switch {
		case args[0] == "--lease":
			lease = true
		case args[0] == "--fd" && len(args) > 1:
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 0 {
				os.Stderr.WriteString(usage)
				return cell.ExitUsage
			}
			fd, args = n, args[1:]
		default:
			os.Stderr.WriteString(usage)
			return cell.ExitUsage
		}
		args = args[1:]
	}
	if len(args) != 1 {
		os.Stderr.WriteString(usage)
		return cell.ExitUsage
	}
	// A signal must not end this process, which what it relays for did not ask for: the
	// channel is never read.
	signal.Notify(make(chan os.Signal, 1))
	unix.CloseOnExec(fd)
	cfg, err := cell.Load(args[0])
	if err != nil {
		return fail(err)
	}
	return cell.Serve(cfg, cell.Options{Owner: os.NewFile(uintptr(fd), "owner"), Lease: lease, Errors: os.Stderr})
}

func fail(err error) int {
	os.Stderr.WriteString("bailey-cell: " + err.Error() + "\n")
	return cell.ExitUsage
}
