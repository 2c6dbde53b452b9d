//go:build linux

// Attack is what the escape suite runs inside a sandbox: one attempt to get
// out, named by its first argument. It is a static program, so that it needs
// nothing of the sandbox but itself.
//
// What it achieves it does not claim: it hands over the loot. Descriptor 1 is a
// SOCK_SEQPACKET socket to the suite; tell sends words and descriptors, and the
// suite looks at what arrived, and at the host, while the attack waits for the
// answer. Descriptor 2 is for people who debug an attempt.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"

	"golang.org/x/sys/unix"
)

const channel = 1

// attacks are the attempts by name.
var attacks = map[string]func(args []string) error{}

// The main goroutine stays on the first thread: credentials, personality and
// memory policy belong to threads, and the suite looks at the first one.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) < 2 || attacks[os.Args[1]] == nil {
		var names []string
		for n := range attacks {
			names = append(names, n)
		}
		sort.Strings(names)
		fmt.Fprintln(os.Stderr, "attacks:", names)
		os.Exit(2)
	}
	name := os.Args[1]
	if name == "victim" || name == "sleep" || name == "int80-probe" { // an attack has started it: there is no channel
		attacks[name](os.Args[2:])
		return
	}
	tell("started " + name)
	if err := attacks[name](os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		tell("failed " + err.Error())
		os.Exit(1)
	}
	tell("done")
}

// tell hands words and descriptors to the suite and waits until it has looked.
// Without a suite there is nothing left to do.
func tell(words string, fds ...int) {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if len(words) > 32<<10 {
		words = words[:32<<10]
	}
	for {
		err := unix.Sendmsg(channel, []byte(words), oob, nil, unix.MSG_NOSIGNAL)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			fmt.Fprintln(os.Stderr, "tell:", err)
			os.Exit(3)
		}
	}
	buf := make([]byte, 16)
	for {
		n, err := unix.Read(channel, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			os.Exit(3)
		}
		return
	}
}

// loot sends the content of an open file.
func loot(fd int) error {
	buf := make([]byte, 16<<10)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return err
	}
	tell("loot " + string(buf[:n]))
	return nil
}

func number(s string) int {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		panic(err) // the suite and this program are built together
	}
	return int(n)
}

func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func errno(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// first gives the first error of several steps that are done all the same.
func first(errs ...error) error {
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return nil
}

var errNothing = errors.New("found nothing")
