//go:build linux

package rig

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
)

// Daemon is a keeper with its daemon, in a yard.
type Daemon struct {
	y      *Yard
	cmd    *exec.Cmd
	Client *client.Client
	output bytes.Buffer
	ended  chan struct{}
}

// Serve starts a keeper and daemon for the yard's data folder and waits until it
// answers. The end of the test ends both; whatever sandboxes there are end then, too.
func (y *Yard) Serve(args ...string) *Daemon {
	y.t.Helper()
	d := &Daemon{y: y, ended: make(chan struct{})}
	d.cmd = y.Bailey(append([]string{"serve", "--home", y.Data}, args...)...)
	d.cmd.Stdout, d.cmd.Stderr = &d.output, &d.output
	if err := d.cmd.Start(); err != nil {
		y.t.Fatal(err)
	}
	go func() {
		d.cmd.Wait() // how it ended is what the test looks at
		close(d.ended)
	}()
	y.t.Cleanup(d.End)
	var err error
	if d.Client, err = client.New(client.Options{URL: "unix://" + y.Socket(), Patience: 2 * Patience}); err != nil {
		y.t.Fatal(err)
	}
	for end := time.Now().Add(Patience); !y.Answers(); {
		select {
		case <-d.ended:
			y.t.Fatalf("the daemon ended:\n%s", d.output.String())
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(end) {
			y.t.Fatal("the daemon does not answer")
		}
	}
	return d
}

// Socket is the path of the daemon's socket.
func (y *Yard) Socket() string { return filepath.Join(y.Data, client.SocketName) }

// Answers says that a daemon listens.
func (y *Yard) Answers() bool {
	c, err := net.Dial("unix", y.Socket())
	if err == nil {
		c.Close()
	}
	return err == nil
}

// Keeper is the keeper's process.
func (d *Daemon) Keeper() int { return d.cmd.Process.Pid }

// Find gives a process below the keeper whose command line begins as said: the
// program's name and what follows it. 0 is none.
func (d *Daemon) Find(program, verb string) int {
	for _, pid := range Descendants() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		words := strings.Split(string(line), "\x00")
		if len(words) > 1 && filepath.Base(words[0]) == program && words[1] == verb {
			return pid
		}
	}
	return 0
}

// Kill kills the daemon, as by an accident. The keeper starts another.
func (d *Daemon) Kill() bool {
	pid := d.Find("baileyd", "serve")
	return pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil
}

// KillGate kills the gate.
func (d *Daemon) KillGate() bool {
	pid := d.Find("baileyd", "gate")
	return pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil
}

// End ends all sandboxes, the daemon and the keeper, and returns when they have
// gone.
func (d *Daemon) End() {
	select {
	case <-d.ended:
		return
	default:
	}
	if d.Client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
		defer cancel()
		for s, err := range d.Client.AllSandboxes(ctx, api.SandboxQuery{}) {
			if err == nil {
				err = d.Client.Sandbox(s.ID).Delete(ctx)
			}
			if err != nil {
				d.y.t.Errorf("at the end: %v", err)
				break
			}
		}
		d.Client.Close()
	}
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(2 * Patience):
		d.y.t.Errorf("keeper and daemon did not end by SIGTERM")
		d.cmd.Process.Kill()
		<-d.ended
	}
	if d.y.t.Failed() {
		d.y.t.Logf("the daemon said:\n%s", d.output.String())
	}
}
