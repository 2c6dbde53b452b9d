package client

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A daemon that its keeper starts again is waited for; one that nobody keeps is given
// up soon.
func TestOthersDaemon(t *testing.T) {
	for _, tc := range []struct {
		script string
		kept   bool
	}{{"exit 75", true}, {"exit 125", false}, {"kill -9 $$", false}} {
		if got := hasKeeper(exec.Command("/bin/sh", "-c", tc.script).Run()); got != tc.kept {
			t.Errorf("%s: %v", tc.script, got)
		}
	}
	if hasKeeper(nil) || hasKeeper(errors.New("x")) {
		t.Error("no keeper ended")
	}
	socket := filepath.Join(t.TempDir(), "s")
	inv := &invocation{}
	answered := make(chan bool, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { answered <- inv.other(ctx, socket, true) }()
	// Longer than one that nobody keeps is waited for.
	begin := time.Now()
	if inv.other(ctx, socket, false) {
		t.Error("nobody answers")
	}
	if took := time.Since(begin); took < 3*time.Second {
		t.Errorf("given up after %v", took)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !<-answered {
		t.Error("the daemon that came was not waited for")
	}
}
