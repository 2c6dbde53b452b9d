//go:build linux

package stay

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// TestCommands goes through the commands of the documents, in one sandbox's life.
func TestCommands(t *testing.T) {
	eachLevel(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		id := strings.TrimSpace(y.Must("create", "--name", "box", "--label", "task=1", "--timeout", "never", "--", "sleep", "1000"))
		says(t, y, 0, "never", "ls", "--label", "task=1")
		if out := y.Must("diff", "box"); out != "" {
			t.Errorf("nobody has changed anything, and it says %q", out)
		}
		if out := y.Must("ls", "-q", "--label", "task=2"); out != "" {
			t.Errorf("another label finds %q", out)
		}
		says(t, y, 125, "[conflict]", "create", "--name", "box")
		says(t, y, 125, "[not_found]", "exec", "nosuch", "--", "true")

		says(t, y, 3, "out\n", "exec", "box", "--", "sh", "-c", "echo out; exit 3")
		says(t, y, 127, "[command_not_found]", "exec", "box", "--", "no-such-program")
		says(t, y, 124, "timeout", "exec", "--timeout", "100ms", "box", "--", "sleep", "1000")
		says(t, y, 0, "", "exec", "box", "--", "cat") // no input: its end at once
		in := y.Bailey("exec", "-i", "box", "--", "wc", "-c")
		in.Stdin = bytes.NewReader(make([]byte, 100_000))
		if r := y.Finish(in); strings.TrimSpace(r.Stdout) != "100000" {
			t.Errorf("input: %v", r)
		}

		y.Write("tree/a", "one\x00two", 0o600)
		y.Write("tree/bin/x", "#!/bin/sh\necho x\n", 0o755)
		y.Write("tree/.gitignore", "bin/\n", 0o644)
		says(t, y, 0, "3 files", "cp", y.Work+"/tree", "box:/root/tree")
		says(t, y, 0, "x\n", "exec", "box", "--", "/root/tree/bin/x")
		says(t, y, 0, "a", "cp", "box:/root/tree/a", y.Temp+"/a")
		if b, err := os.ReadFile(y.Temp + "/a"); err != nil || string(b) != "one\x00two" {
			t.Errorf("copied out: %q, %v", b, err)
		}
		says(t, y, 0, "/root/tree/a", "files", "search", "--text", "two", "box", "/root/tree")

		first := y.Must("checkpoint", "--name", "before", "box")
		y.Must("exec", "box", "--", "rm", "-r", "/root/tree")
		says(t, y, 0, "deleted", "diff", "--from", "before", "box")
		fork := strings.TrimSpace(y.Must("fork", "--name", "child", "box"))
		says(t, y, 125, "[busy]", "undo", "--to", "before", "box")
		says(t, y, 0, "kept", "undo", "--kill", "--to", strings.TrimSpace(first), "box")
		says(t, y, 0, "one\x00two", "exec", "box", "--", "cat", "/root/tree/a")
		says(t, y, 1, "No such file", "exec", "child", "--", "cat", "/root/tree/a")
		if fork == id {
			t.Error("the fork has its parent's id")
		}

		says(t, y, 0, "memory", "pause", "child")
		says(t, y, 0, "paused", "show", "child")
		says(t, y, 0, "awake\n", "exec", "child", "--", "echo", "awake")
		lost := "lost memory"
		if strings.HasSuffix(t.Name(), "/gvisor") { // which puts it on disk
			lost = "memory, processes; lost connections"
		}
		says(t, y, 0, lost, "pause", "--to-disk", "child")
		says(t, y, 0, "again\n", "exec", "child", "--", "echo", "again")

		e := strings.TrimSpace(y.Must("exec", "-d", "--id", "mine", "box", "--", "sh", "-c", "echo 1; echo 2 >&2; exit 7"))
		says(t, y, 7, "1\n", "logs", "-f", "box", e)
		if out := y.Must("logs", "--stream", "stdout", "--offset", "1", "box", "mine"); out != "\n" {
			t.Errorf("from offset 1: %q", out)
		}
		says(t, y, 0, "child", "rm", "child")
		y.Must("rm", "box")
		y.Must("rm", id) // any number of times
		says(t, y, 125, "[sandbox_ended]", "exec", id, "--", "true")
		says(t, y, 0, "ended", "show", id)
		says(t, y, 7, "", "logs", "-f", id, "mine") // how it ended is kept

		var orphans []api.Orphan
		if err := json.Unmarshal([]byte(y.Must("gc", "--dry-run", "--json")), &orphans); err != nil || len(orphans) > 0 {
			t.Errorf("left behind: %v, %v", orphans, err)
		}
	})
}

// TestSnapshotsTravel exports a snapshot and imports it into another data folder.
func TestSnapshotsTravel(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		y.Must("create", "--name", "a")
		y.Must("exec", "a", "--", "sh", "-c", "mkdir -p /root/d; echo kept > /root/d/f; ln -s f /root/d/l; rm /etc/hosts.allow 2>/dev/null; true")
		snap := strings.TrimSpace(y.Must("snapshot", "create", "a"))
		file := filepath.Join(y.Temp, "snap.tar")
		y.Must("snapshot", "export", "-o", file, snap)
		d.End() // the other yard counts all processes

		other := rig.New(t, y.Who)
		other.Serve()
		other.Must("snapshot", "import", "--name", "moved", file)
		other.Must("create", "--snapshot", "moved", "--name", "b")
		says(t, other, 0, "kept\n", "exec", "b", "--", "cat", "/root/d/l")
	})
}

// TestStartsByItself: the first command starts keeper and daemon, and they leave
// when the last sandbox has gone.
func TestStartsByItself(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			y := rig.New(t, who)
			// Ten at once: one of their daemons serves all.
			var all []*started
			for range 10 {
				all = append(all, begin(t, y, "create", "--timeout", "never"))
			}
			ids := map[string]bool{}
			for _, s := range all {
				if code := s.wait(); code != 0 {
					t.Errorf("code %d: %s", code, &s.errs)
				}
				ids[s.out.String()] = true
			}
			if len(ids) != 10 {
				t.Errorf("ten creates made %d sandboxes", len(ids))
			}
			y.Must("rm", "--all")
			if took, err := y.Gone(rig.Patience); err != nil {
				t.Errorf("after %v the daemon is still there: %v", took, err)
			}
			if y.Answers() {
				t.Error("somebody listens")
			}
		})
	}
}

// TestDaemonKilled: what a person sees of a daemon's death is nothing.
func TestDaemonKilled(t *testing.T) {
	eachLevel(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		y.Must("create", "--name", "box")
		s := begin(t, y, "exec", "box", "--", "sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done; until [ -e /root/go ]; do sleep 0.01; done; echo end; exit 9")
		if !d.Kill() {
			t.Fatal("there is no daemon to kill")
		}
		y.Must("exec", "box", "--", "touch", "/root/go")
		if code := s.wait(); code != 9 {
			t.Errorf("the command ended with %d: %s", code, &s.errs)
		}
		lines := strings.Split(strings.TrimSpace(s.out.String()), "\n")
		if len(lines) != 3001 || lines[0] != "0" || lines[2999] != "2999" || lines[3000] != "end" {
			t.Errorf("%d lines came", len(lines))
		}
	})
}
