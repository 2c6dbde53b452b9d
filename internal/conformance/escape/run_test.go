//go:build linux

package escape

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/changes"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// machine is a host with a user, a home with a secret and a project, for
// attempts on `bailey run` as a whole.
type machine struct {
	host                  *run.Host
	home, project, secret string
}

func newMachine(t *testing.T, s *Suite) machine {
	t.Helper()
	dir, err := os.MkdirTemp(s.Dir, "machine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.RemoveTree(dir) })
	m := machine{home: filepath.Join(dir, "home"), secret: "canary-of-the-home"}
	m.project = filepath.Join(m.home, "project")
	for _, d := range []string{filepath.Join(m.home, ".ssh"), filepath.Join(m.project, "sub")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{filepath.Join(m.home, ".ssh", "id"): m.secret, filepath.Join(m.project, "sub", "file"): "old\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := folder.OpenAt(filepath.Join(dir, "bailey"))
	if err != nil {
		t.Fatal(err)
	}
	m.host = &run.Host{Folder: f, Driver: linux.New(linux.Options{State: f.Path()}), Home: m.home, User: "somebody",
		Env: []string{"PATH=/usr/bin:/bin", "HOME=" + m.home, "GITHUB_TOKEN=" + m.secret}}
	return m
}

// do runs a shell script at the process level and gives what it printed.
func (m machine) do(t *testing.T, script string, limits bailey.Limits, setEnv ...string) (string, *run.Outcome) {
	t.Helper()
	c := &run.Capture{}
	out, err := m.host.Do(context.Background(), run.Request{Command: []string{"/bin/sh", "-c", script}, Dir: m.project,
		Level: bailey.IsolationProcess, UID: -1, GID: -1, Limits: limits, SetEnv: setEnv, Capture: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Run.Close() })
	var all strings.Builder
	for _, f := range []*os.File{c.Out, c.Err} {
		f.Seek(0, io.SeekStart)
		io.Copy(&all, f)
		f.Close()
	}
	return all.String(), out
}

// throughRun makes attempts on `bailey run` as a whole, as a user meets it.
func throughRun(t *testing.T, s *Suite) {
	t.Run("home", func(t *testing.T) {
		m := newMachine(t, s)
		got, _ := m.do(t, "cat ~/.ssh/id ../.ssh/id "+m.home+"/.ssh/id; rm -rf ~/.ssh ..; env; cat /proc/*/environ | tr '\\0' '\\n'; true", bailey.Limits{})
		if strings.Contains(got, m.secret) {
			t.Errorf("a secret came out: %s", got)
		}
		if b, err := os.ReadFile(filepath.Join(m.home, ".ssh", "id")); err != nil || string(b) != m.secret {
			t.Errorf("the home folder changed: %q, %v", b, err)
		}
		// The control: what is let in by name does come out.
		if got, _ := m.do(t, "env", bailey.Limits{}, "GITHUB_TOKEN"); !strings.Contains(got, m.secret) {
			t.Errorf("--env GITHUB_TOKEN did not pass the token on: %s", got)
		}
	})
	// Package changes has its own tests of races on apply; this is the way
	// from a command to the host's files.
	t.Run("apply", func(t *testing.T) {
		for _, attacked := range []bool{false, true} {
			m := newMachine(t, s)
			_, out := m.do(t, "echo new > sub/file; echo new > sub/id; ln -s "+m.home+"/.ssh link; echo x > link/id", bailey.Limits{})
			set, err := changes.Seal(context.Background(), out.Run)
			if err != nil {
				t.Fatal(err)
			}
			sub := filepath.Join(m.project, "sub")
			if attacked {
				// Another program of the host exchanges the folder meanwhile.
				if err := os.RemoveAll(sub); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(filepath.Join(m.home, ".ssh"), sub); err != nil {
					t.Fatal(err)
				}
			}
			report, err := changes.Apply(context.Background(), out.Run, set, changes.ApplyOptions{Force: attacked})
			if err != nil && !attacked {
				t.Fatal(err)
			}
			list, err := os.ReadDir(filepath.Join(m.home, ".ssh"))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(m.home, ".ssh", "id"))
			if err != nil || string(b) != m.secret || len(list) != 1 {
				t.Errorf("attacked %v: apply wrote through a link: %q, %v, %v (%+v)", attacked, b, list, err, report)
			}
			b, _ = os.ReadFile(filepath.Join(sub, "file"))
			if !attacked && string(b) != "new\n" {
				t.Errorf("apply did nothing: %q, %+v", b, report)
			}
		}
	})
	t.Run("disk", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Log("a disk limit needs root here")
			return
		}
		const limit = 16 << 20
		written := func(limits bailey.Limits) int64 {
			m := newMachine(t, s)
			_, out := m.do(t, "dd if=/dev/zero of=filled bs=1M count=40; stat -c %s filled", limits)
			set, err := changes.Seal(context.Background(), out.Run)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range set.Changes {
				if strings.HasSuffix(c.Path, "filled") {
					return int64(c.Layer.Size)
				}
			}
			return 0
		}
		if n := written(bailey.Limits{Disk: limit}); n > limit {
			t.Errorf("%d bytes were written with a limit of %d", n, limit)
		}
		if n := written(bailey.Limits{}); n != 40<<20 {
			t.Errorf("without a limit %d bytes were written, want %d: the test proves nothing", n, 40<<20)
		}
	})
}
