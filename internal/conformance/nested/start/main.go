//go:build linux

// Command start makes a nested run; ./scripts/nested calls it:
//
//	start [-run RE] [-skip RE] [-user | -both] [-env NAME=VALUE]... PACKAGE...
//	start -command [-user | -both] PROGRAM ARGUMENT...
//
// The programs of the repository are in /nested/programs/plain/cmd of the machine.
// Its last line is "N passed, N failed, N skipped".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested"
)

func main() {
	o := nested.Options{Out: os.Stdout}
	run := flag.String("run", "", "only tests that match")
	skip := flag.String("skip", "", "no tests that match")
	user := flag.Bool("user", false, "as an ordinary user")
	both := flag.Bool("both", false, "as root, then as an ordinary user")
	short := flag.Bool("command", false, "the arguments are a program of the machine and its arguments")
	programs := flag.Bool("programs", true, "build the repository's programs too")
	flag.IntVar(&o.Seconds, "seconds", 0, "the most that one test binary may take")
	flag.IntVar(&o.Memory, "memory", 0, "MiB of the machine")
	flag.StringVar(&o.Kernel, "kernel", "", "the folder of the kernel")
	flag.StringVar(&o.Cache, "cache", "", "where the disk with programs is kept")
	flag.Func("env", "a variable of the tests, `NAME=VALUE`", func(s string) error { o.Env = append(o.Env, s); return nil })
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if *programs {
		o.Programs = []string{"./cmd/..."}
	}
	if *short {
		o.Commands = [][]string{flag.Args()}
	} else {
		o.Packages = flag.Args()
	}
	for name, value := range map[string]string{"run": *run, "skip": *skip} {
		if value != "" {
			o.Args = append(o.Args, "-test."+name+"="+value)
		}
	}
	switch {
	case *both:
		o.Users = []bool{false, true}
	case *user:
		o.Users = []bool{true}
	}
	var err error
	if o.Top, err = os.Getwd(); err != nil {
		fmt.Fprintln(os.Stderr, "nested:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	begin := time.Now()
	res, err := nested.Run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nested:", err)
	}
	if res != nil {
		fmt.Printf("took %v\n%s", time.Since(begin).Round(time.Second), res.Summary())
	}
	if err != nil || !res.Ok() {
		os.Exit(1)
	}
}
