package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "as": // as USER -- BINARY ARGS: becomes the user and runs a test binary
			return runAs(args[1:])
		case "probe": // probe KIND NAME: says whether this user has a tool or feature
			return runProbe(args[1:])
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s := &suite{packages: args, results: newResults(), started: time.Now()}
	err := s.run(ctx)
	if err != nil {
		fmt.Println("test:", err)
	}
	return s.finish(err)
}
