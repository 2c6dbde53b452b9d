package cell

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Once runs the inner program with the caller's own descriptors 0, 1 and 2, and hands on the signals that
// come. It gives the program's exit code, 128 and the signal's number if one ended it, once
// every process below this one has ended.
func Once(cfg Config, errors io.Writer) int {
	if err := cfg.check(); err != nil {
		return refuse(Options{Errors: errors}, err)
	}
	sigs := make(chan os.Signal, 16)
	signal.Notify(sigs)
	kids := adopt()
	start := kids.start
	if len(cfg.Signal) > 0 {
		start = kids.startApart // signals come to this process's whole group
	}
	pid, ended, err := start(cfg.Inner, cfg.Env, cfg.Dir, []uintptr{0, 1, 2})
	if err != nil {
		fmt.Fprintf(errors, "bailey-cell: cannot start %s: %v\n", cfg.Inner[0], err)
		return ExitUsage
	}
	for {
		select {
		case sig := <-sigs:
			switch sig {
			case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE: // this process's own
			default:
				if len(cfg.Signal) == 0 {
					unix.Kill(pid, sig.(syscall.Signal))
					continue
				}
				argv := append(slices.Clip(cfg.Signal), strconv.Itoa(int(sig.(syscall.Signal))))
				if _, _, err := kids.startApart(argv, cfg.Env, cfg.Dir, []uintptr{}); err != nil {
					fmt.Fprintf(errors, "bailey-cell: cannot start %s: %v\n", argv[0], err)
				}
			}
		case ws := <-ended:
			kids.endAll()
			return exitCode(ws)
		}
	}
}
