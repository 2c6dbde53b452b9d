//go:build linux

// Command inside is the first process of the machine that nested runs are made
// in: it loads the modules that the disks need, enters the first disk, prepares
// what a Debian's own start would, works through the plan on the second disk and
// tells every event through a port of the machine. Started as `go` it is what
// tests inside find in place of Go: it gives them programs that were built outside.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested/plan"
)

func main() {
	if filepath.Base(os.Args[0]) == "go" {
		if err := giveBuilt(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "go (of a nested run):", err)
			os.Exit(1)
		}
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "inside: this is the first process of a machine of a nested run")
		os.Exit(2)
	}
	t := &teller{}
	if err := work(t); err != nil {
		fmt.Println("inside:", err) // the console, for when there is no port
		t.tell(plan.Event{Fatal: err.Error()})
	}
	t.tell(plan.Event{Done: true})
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("inside: power off:", err)
	}
	select {}
}

func work(t *teller) error {
	if err := enterDisk(); err != nil {
		return err
	}
	port, err := openPort(plan.Port)
	if err != nil {
		return err
	}
	t.port = port
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	t.tell(plan.Event{Kernel: unix.ByteSliceToString(u.Release[:])})
	if err := furnish(); err != nil {
		return err
	}
	b, err := os.ReadFile(plan.File)
	if err != nil {
		return err
	}
	var p plan.Plan
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	reaped := newReaper()
	for i, s := range p.Steps {
		code, err := runStep(t, reaped, i, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		t.tell(plan.Event{Step: i, Ended: true, Code: code})
	}
	return nil
}

// openPort finds a port by its name, as soon as the kernel shows it.
func openPort(name string) (*os.File, error) {
	for range 200 {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, n := range names {
			if b, _ := os.ReadFile(n); string(b) == name+"\n" {
				return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(n)), os.O_WRONLY, 0)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, errors.New("this machine has no port " + name)
}
