//go:build linux

// Command bailey-vmm runs one virtual machine and serves its files. It is the
// inner program of a cell (package cell): descriptor 3 is the stream to bailey-init in
// the machine, its argument a file with what the machine is.
//
//	bailey-vmm CONFIG
//	bailey-vmm run CONFIG
//
// With run it runs one command in the machine, with its own descriptors (package
// once), and exits as the command does.
//
// It exits 0 when the machine has ended by itself, 1 when it has not, and 2 when it
// could not be started.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/microvm/machine"
	"github.com/bailey-sandbox/bailey/internal/microvm/once"
)

const streamFD = 3

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // what runs beside it has no business in it
	if len(args) == 2 && args[0] == "run" {
		c, err := once.Load(args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, "bailey-vmm:", err)
			return 2
		}
		return once.Run(c)
	}
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: bailey-vmm CONFIG | bailey-vmm run CONFIG")
		return 2
	}
	unix.CloseOnExec(streamFD)
	c, err := machine.Load(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bailey-vmm:", err)
		return 2
	}
	agent := os.NewFile(streamFD, "agent")
	m, err := machine.Start(c, agent, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bailey-vmm:", err)
		return 2
	}
	agent.Close()
	if err := m.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, "bailey-vmm: the machine has ended:", err)
		return 1
	}
	return 0
}
