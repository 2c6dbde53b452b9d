//go:build linux && amd64

package machine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// restore goes on from a suspended machine and does what has to be done first.
func restore(t *testing.T, ctx context.Context, c Config, s Suspended) (*Machine, *guest.Client) {
	t.Helper()
	ours, theirs := pair(t)
	log := &buffer{}
	begin := time.Now()
	m, err := Restore(ctx, c, s, theirs, log)
	theirs.Close()
	if err != nil {
		t.Fatal(err, log)
	}
	client := attend(t, m, ours, log)
	t.Logf("restored after %v", time.Since(begin).Round(time.Millisecond))
	seed := make([]byte, 64)
	rand.Read(seed)
	if err := client.SetClock(ctx, time.Now()); err != nil {
		t.Error(err)
	}
	if err := client.AddEntropy(ctx, seed); err != nil {
		t.Error(err)
	}
	return m, client
}

// A process that counts, and writes to a file that it has open, and has another open that it has removed,
// goes on where it was, in each of several machines; they differ in what is random, and their clocks are right.
func TestSuspend(t *testing.T) {
	c := config(t)
	ram, err := os.MkdirTemp("/dev/shm", "microvm-ram")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(ram) })
	c.RAM = filepath.Join(ram, "ram")
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	m, client := boot(t, c)
	// It writes all the time, so that requests are under way whenever the machine is stopped.
	_, err = client.Exec(ctx, guest.ExecSpec{ID: "count", Argv: []string{"/bin/sh", "-c",
		`exec 5>/work/log 6>/work/gone; rm /work/gone; echo kept >&6; echo $$ >/work/pid; i=0; while :; do i=$((i+1)); echo $i >&5; echo $i >/work/n.new; mv /work/n.new /work/n; done`}, Env: []string{"PATH=/bin:/usr/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	sh(t, client, "while ! cat /work/n; do :; done")
	log := filepath.Join(c.Root, "work/log")
	begin := time.Now()
	s, err := m.Suspend(ctx, ram)
	if err != nil {
		t.Fatal(err)
	}
	client.Close() // not before: bailey-init takes that for the end of its owner
	t.Logf("suspended after %v: %d bytes, %d nodes", time.Since(begin).Round(time.Millisecond), len(s.Device), len(s.Files.Nodes))
	if b, err := json.Marshal(s); err != nil || json.Unmarshal(b, &s) != nil {
		t.Fatal(err)
	}
	at := counted(t, log)
	work, saved := filepath.Dir(log), filepath.Join(t.TempDir(), "work")
	if err := os.CopyFS(saved, os.DirFS(work)); err != nil {
		t.Fatal(err)
	}
	// Two in turn, for each has the folder as it was for itself.
	random := map[string]bool{}
	for range 2 {
		again(t, work, saved)
		fork, client := restore(t, ctx, c, s)
		out := strings.Fields(sh(t, client, "date +%s; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' '; cat /proc/sys/kernel/random/uuid"))
		now, _ := strconv.ParseInt(out[0], 10, 64)
		if diff := time.Since(time.Unix(now, 0)); diff < -2*time.Second || diff > 5*time.Second {
			t.Errorf("its clock is off by %v", diff)
		}
		for _, r := range out[1:] {
			if random[r] {
				t.Errorf("two machines have the same random %s", r)
			}
			random[r] = true
		}
		if got := sh(t, client, "cat /proc/$(cat /work/pid)/fd/6"); got != "kept\n" {
			t.Errorf("the file that it has open and removed holds %q", got)
		}
		fork.Kill()
		fork.Wait()
		if after := counted(t, log); len(after) <= len(at) {
			t.Errorf("the process has not gone on from %d", len(at))
		}
	}

	// What it had open is not there any more: it does not start without it.
	again(t, work, saved)
	os.Remove(log)
	ours, theirs := pair(t)
	defer ours.Close()
	defer theirs.Close()
	if m, err := Restore(ctx, c, s, theirs, io.Discard); bailey.CodeOf(err) != bailey.CodeRestoreIncomplete {
		t.Errorf("without an open file: %v, %v", m, err)
	}
}

// again makes a folder hold what another does.
func again(t *testing.T, dir, saved string) {
	t.Helper()
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(saved))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// counted reads the log, in which each number follows the one before.
func counted(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	for i, l := range lines {
		if l != strconv.Itoa(i+1) {
			t.Fatalf("line %d of the log is %q", i+1, l)
		}
	}
	return lines
}
