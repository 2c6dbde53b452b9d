package project

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/hostview"
)

// granted is the isolation that settings lead to, as a run chooses it: nothing
// below the least that is admitted is ever started.
func granted(s Settings) bailey.Isolation {
	if s.Isolation != bailey.IsolationAuto {
		return s.Isolation
	}
	if s.Image != "" || s.Template != "" {
		return max(bailey.IsolationContainer, s.MinIsolation)
	}
	return max(bailey.IsolationProcess, s.MinIsolation)
}

// inForce gives a limit as it holds: as a number to compare, where none is
// more than any.
func inForce[T ~int64 | ~float64](asked, byDefault T) float64 {
	switch {
	case asked > 0:
		return float64(asked)
	case byDefault > 0:
		return float64(byDefault)
	}
	return 1e30
}

// wider says in what the settings a allow more than b; "" if in nothing. It is
// written without a look at Merge, from what each flag does.
func wider(a, b Settings, defaults bailey.Limits, workspace string) string {
	if granted(a) < granted(b) {
		return fmt.Sprintf("isolation fell from %s to %s", granted(b), granted(a))
	}
	if a.MinIsolation < b.MinIsolation {
		return fmt.Sprintf("min-isolation fell from %s to %s", b.MinIsolation, a.MinIsolation)
	}
	d := defaults
	for name, v := range map[string][2]float64{
		"cpus":    {inForce(a.Limits.CPUs, d.CPUs), inForce(b.Limits.CPUs, d.CPUs)},
		"memory":  {inForce(a.Limits.Memory, d.Memory), inForce(b.Limits.Memory, d.Memory)},
		"pids":    {inForce(a.Limits.Pids, d.Pids), inForce(b.Limits.Pids, d.Pids)},
		"disk":    {inForce(a.Limits.Disk, d.Disk), inForce(b.Limits.Disk, d.Disk)},
		"io":      {inForce(a.Limits.IO, d.IO), inForce(b.Limits.IO, d.IO)},
		"output":  {inForce(a.Limits.Output, d.Output), inForce(b.Limits.Output, d.Output)},
		"timeout": {inForce(a.Limits.Timeout, d.Timeout), inForce(b.Limits.Timeout, d.Timeout)},
	} {
		if v[0] > v[1] {
			return fmt.Sprintf("%s rose from %g to %g", name, v[1], v[0])
		}
	}
	for _, m := range a.Mounts {
		if !slices.Contains(b.Mounts, m) && (m.Writable || !within(m.Source, workspace)) {
			return "a mount was added: " + m.String()
		}
	}
	for _, m := range b.Mounts {
		if !slices.Contains(a.Mounts, m) {
			return "a mount was lost: " + m.String()
		}
		for _, o := range a.Mounts {
			if o != m && !slices.Contains(b.Mounts, o) && within(m.Target, o.Target) {
				return "a mount was covered: " + m.String()
			}
		}
	}
	for _, kv := range a.Env {
		if !strings.Contains(kv, "=") && !slices.Contains(b.Env, kv) && !slices.Contains(b.PassEnv, kv) {
			return "a variable of the host passes: " + kv
		}
	}
	for _, kv := range b.Env {
		if !slices.Contains(a.Env, kv) {
			return "a variable was lost: " + kv
		}
	}
	if b.Image != "" && a.Image != b.Image || b.Template != "" && a.Template != b.Template {
		return "the root file system was changed"
	}
	if a.Image != b.Image && !within(a.Image, workspace) {
		return "the root file system comes from outside: " + a.Image
	}
	if b.Home != "" && a.Home != b.Home || b.Home == "" && a.Home != "" && !strings.HasPrefix(a.Home, fileHome) {
		return "another home was taken: " + a.Home
	}
	if b.Copy && !a.Copy {
		return "the copy was lost"
	}
	if !reflect.DeepEqual(a.Writable, b.Writable) || a.Apply != b.Apply || a.Nested != b.Nested || a.IUnderstand != b.IUnderstand ||
		a.OwnPolicy != b.OwnPolicy || a.Offline != b.Offline || !reflect.DeepEqual(a.PassEnv, b.PassEnv) {
		return "a person's own flag changed"
	}
	return ""
}

// anySettings makes settings at random, also such as no parser gives.
func anySettings(r *rand.Rand) Settings {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	number := func() int64 {
		if r.IntN(3) == 0 {
			return 0
		}
		return int64(r.IntN(40)) - 4
	}
	s := Settings{
		Isolation: bailey.Isolation(r.IntN(7)), MinIsolation: bailey.Isolation(r.IntN(7)),
		Image: pick("", "", "/w/p/img", "/img"), Template: pick("", "", "host"), Workdir: pick("", "/w/p/src", "/etc"), Home: pick("", "", "a", "b"),
		Limits: bailey.Limits{CPUs: float64(number()) / 2, Memory: number(), Pids: number(), Disk: number(), IO: number(), Output: number(), Timeout: time.Duration(number())},
		Copy:   r.IntN(2) == 0, Apply: r.IntN(2) == 0, Nested: r.IntN(2) == 0, IUnderstand: r.IntN(2) == 0,
	}
	if r.IntN(2) == 0 {
		s.Isolation = 0
	}
	if r.IntN(2) == 0 {
		s.MinIsolation = 0
	}
	for range r.IntN(4) {
		s.Mounts = append(s.Mounts, hostview.Mount{Source: pick("/w/p/data", "/w/p", "/etc", "/w/px", "/"), Target: pick("/data", "/data/x", "/d", "/"), Writable: r.IntN(3) == 0})
		name := pick("A", "B", "SECRET", "TOKEN")
		s.Env = append(s.Env, pick(name, name+"=1", name+"=2"))
	}
	s.Env = slices.CompactFunc(s.Env, func(a, b string) bool { return a[0] == b[0] })
	s.PassEnv = []string{pick("A", "B")}
	if r.IntN(3) == 0 {
		s.Writable, s.OwnPolicy, s.Offline = []string{"."}, pick("", "own"), r.IntN(2) == 0
	}
	for _, list := range []*[]string{&s.Allow, &s.Profiles, &s.Secrets} {
		if r.IntN(3) == 0 {
			*list = []string{pick("x", "y")}
		}
	}
	return s
}

// TestFileNeverWidens tries many pairs of settings: a file, whatever it says,
// takes a person's sandbox no further than it was.
func TestFileNeverWidens(t *testing.T) {
	const ws = "/w/p"
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	defaults := bailey.Limits{Memory: 20, Pids: 10, Disk: 15, Output: 12}
	merged, changed := 0, 0
	for range 30000 {
		user, file := anySettings(r), anySettings(r)
		// A person's own flags are sound by themselves.
		if user.Isolation != 0 && user.Isolation < user.MinIsolation {
			user.MinIsolation = 0
		}
		if l := &user.Limits; true {
			l.CPUs, l.Memory, l.Pids, l.Disk = max(l.CPUs, 0), max(l.Memory, 0), max(l.Pids, 0), max(l.Disk, 0)
			l.IO, l.Output, l.Timeout = max(l.IO, 0), max(l.Output, 0), max(l.Timeout, 0)
		}
		before := fmt.Sprintf("%+v", user)
		out, _, err := Merge(user, file, defaults, ws)
		if after := fmt.Sprintf("%+v", user); after != before {
			t.Fatalf("seed %d: Merge changed its input: %s became %s", seed, before, after)
		}
		if err != nil {
			if bailey.CodeOf(err) != bailey.CodeUsage {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		merged++
		if !reflect.DeepEqual(out, user) {
			changed++
		}
		if why := wider(out, user, defaults, ws); why != "" {
			t.Fatalf("seed %d: %s\nuser   %+v\nfile   %+v\nresult %+v", seed, why, user, file, out)
		}
		// The same file again changes nothing more.
		again, _, err := Merge(out, file, defaults, ws)
		if err != nil || wider(again, out, defaults, ws) != "" {
			t.Fatalf("seed %d: again: %v, %s", seed, err, wider(again, out, defaults, ws))
		}
		// No file, no change.
		if same, notes, err := Merge(user, Settings{}, defaults, ws); err != nil || len(notes) > 0 || fmt.Sprintf("%+v", same) != before {
			t.Fatalf("seed %d: an empty file changes %+v into %+v, %v, %v", seed, user, same, notes, err)
		}
	}
	if merged < 10000 || changed < merged/2 {
		t.Errorf("of %d pairs only %d had an effect: this test tests little", merged, changed)
	}
}

func TestMerge(t *testing.T) {
	const ws = "/w/p"
	c, p := bailey.IsolationContainer, bailey.IsolationProcess
	defaults := bailey.Limits{Memory: 8 << 30, Pids: 4096, Disk: 16 << 30, Output: 1 << 30}
	data := hostview.Mount{Source: "/w/p/data", Target: "/data"}
	policy := &File{Path: "/w/p/policy.yaml", Data: []byte("version: 1")}
	tests := []struct {
		name             string
		user, file, want Settings
		notes            []string
		fails            bool
	}{
		{name: "isolation: the file's, if it is stronger", file: Settings{Isolation: c}, want: Settings{Isolation: c}},
		{name: "isolation: also than what was asked for", user: Settings{Isolation: p}, file: Settings{Isolation: c}, want: Settings{Isolation: c}},
		{name: "isolation: the person's, if that is", user: Settings{Isolation: c}, file: Settings{Isolation: p}, want: Settings{Isolation: c}, notes: []string{"isolation: ignored: process is weaker than container"}},
		{name: "isolation: nothing below what a run gets by itself", file: Settings{Isolation: bailey.IsolationInterpreter}, want: Settings{}, notes: []string{"interpreter is weaker than process"}},
		{name: "isolation: nothing below what the person's image gets", user: Settings{Image: "/i"}, file: Settings{Isolation: p}, want: Settings{Image: "/i"}, notes: []string{"weaker"}},
		{name: "isolation: nothing below the least", user: Settings{MinIsolation: c}, file: Settings{Isolation: p}, want: Settings{MinIsolation: c}, notes: []string{"weaker"}},
		{name: "least isolation: the stronger", user: Settings{MinIsolation: p}, file: Settings{MinIsolation: c}, want: Settings{MinIsolation: c}},
		{name: "least isolation: the person's", user: Settings{MinIsolation: c}, file: Settings{MinIsolation: p}, want: Settings{MinIsolation: c}, notes: []string{"min-isolation: ignored"}},
		{name: "least isolation against what was asked for", user: Settings{Isolation: p}, file: Settings{MinIsolation: c}, fails: true},
		{name: "image of the file", file: Settings{Image: "/w/p/i"}, want: Settings{Image: "/w/p/i"}},
		{name: "image of the person", user: Settings{Image: "/i"}, file: Settings{Image: "/w/p/i"}, want: Settings{Image: "/i"}, notes: []string{"image: yours"}},
		{name: "template of the person", user: Settings{Template: "host"}, file: Settings{Image: "/w/p/i"}, want: Settings{Template: "host"}, notes: []string{"image: yours"}},
		{name: "template of the file", file: Settings{Template: "host"}, want: Settings{Template: "host"}},
		{name: "image from outside", file: Settings{Image: "/etc/x"}, want: Settings{}, notes: []string{"not in the workspace"}},
		{name: "image at a level without one", user: Settings{Isolation: p}, file: Settings{Image: "/w/p/i"}, want: Settings{Isolation: p}, notes: []string{"no root file system"}},
		{name: "image with the level for it", user: Settings{Isolation: p}, file: Settings{Isolation: c, Image: "/w/p/i"}, want: Settings{Isolation: c, Image: "/w/p/i"}},
		{name: "a file that asks for process", file: Settings{Isolation: p}, want: Settings{Isolation: p}},
		{name: "limits: lower than the person's", user: Settings{Limits: bailey.Limits{Memory: 4 << 30, Timeout: time.Hour}}, file: Settings{Limits: bailey.Limits{Memory: 1 << 30, Timeout: time.Minute}},
			want: Settings{Limits: bailey.Limits{Memory: 1 << 30, Timeout: time.Minute}}},
		{name: "limits: higher than the person's", user: Settings{Limits: bailey.Limits{Memory: 1 << 30}}, file: Settings{Limits: bailey.Limits{Memory: 4 << 30}},
			want: Settings{Limits: bailey.Limits{Memory: 1 << 30}}, notes: []string{"memory: ignored"}},
		{name: "limits: higher than the default", file: Settings{Limits: bailey.Limits{Memory: 9 << 30, Pids: 5000}}, want: Settings{}, notes: []string{"memory: ignored", "pids: ignored"}},
		{name: "limits: lower than the default", file: Settings{Limits: bailey.Limits{Memory: 1 << 30, Pids: 10}}, want: Settings{Limits: bailey.Limits{Memory: 1 << 30, Pids: 10}}},
		{name: "limits: a person may go above the default, and a file below that", user: Settings{Limits: bailey.Limits{Pids: 9000}}, file: Settings{Limits: bailey.Limits{Pids: 8000}},
			want: Settings{Limits: bailey.Limits{Pids: 8000}}},
		{name: "limits: without a default", file: Settings{Limits: bailey.Limits{CPUs: 64, IO: 1 << 40, Timeout: 99 * time.Hour}}, want: Settings{Limits: bailey.Limits{CPUs: 64, IO: 1 << 40, Timeout: 99 * time.Hour}}},
		{name: "mounts: both", user: Settings{Mounts: []hostview.Mount{{Source: "/x", Target: "/x", Writable: true}}}, file: Settings{Mounts: []hostview.Mount{data}},
			want: Settings{Mounts: []hostview.Mount{{Source: "/x", Target: "/x", Writable: true}, data}}},
		{name: "mounts: not from outside, not writable", file: Settings{Mounts: []hostview.Mount{{Source: "/etc", Target: "/e"}, {Source: "/w/p2", Target: "/e"}, {Source: "/w/p/x", Target: "/e", Writable: true}}},
			want: Settings{}, notes: []string{`"/etc:/e:ro" is ignored`, `"/w/p2:/e:ro" is ignored`, `"/w/p/x:/e:rw" is ignored`}},
		{name: "mounts: not over the person's", user: Settings{Mounts: []hostview.Mount{{Source: "/x", Target: "/data/x"}}}, file: Settings{Mounts: []hostview.Mount{data}},
			want: Settings{Mounts: []hostview.Mount{{Source: "/x", Target: "/data/x"}}}, notes: []string{"lie over a mount of yours"}},
		{name: "env: values", user: Settings{Env: []string{"A=1", "B"}}, file: Settings{Env: []string{"A=2", "B=2", "C=3"}}, want: Settings{Env: []string{"A=1", "B", "C=3"}}, notes: []string{"A: yours", "B: yours"}},
		{name: "env: variables of the host", user: Settings{PassEnv: []string{"OK"}}, file: Settings{Env: []string{"OK", "SECRET"}}, want: Settings{PassEnv: []string{"OK"}, Env: []string{"OK"}},
			notes: []string{"asks for your variable SECRET"}},
		{name: "home: the file's, apart from the person's homes", file: Settings{Home: "agent"}, want: Settings{Home: "project.agent"}},
		{name: "home: the person's", user: Settings{Home: "mine"}, file: Settings{Home: "agent"}, want: Settings{Home: "mine"}, notes: []string{"home: yours"}},
		{name: "workdir", file: Settings{Workdir: "/w/p/src"}, want: Settings{Workdir: "/w/p/src"}},
		{name: "workdir: the person's", user: Settings{Workdir: "/tmp"}, file: Settings{Workdir: "/w/p/src"}, want: Settings{Workdir: "/tmp"}, notes: []string{"workdir: yours"}},
		{name: "workdir outside", file: Settings{Workdir: "/etc"}, want: Settings{}, notes: []string{"workdir: ignored"}},
		{name: "copy", file: Settings{Copy: true}, want: Settings{Copy: true}},
		{name: "what only a person may say", file: Settings{Writable: []string{"."}, Apply: true, Nested: true, IUnderstand: true, OwnPolicy: "p", Offline: true, PassEnv: []string{"SECRET"}, Env: []string{"SECRET"}},
			want: Settings{}, notes: []string{"SECRET"}},
		{name: "network", user: Settings{Allow: []string{"a"}, Secrets: []string{"S@a"}}, file: Settings{Allow: []string{"a", "b"}, Profiles: []string{"p"}, Policy: policy},
			want: Settings{Allow: []string{"a", "b"}, Profiles: []string{"p"}, Secrets: []string{"S@a"}, Policy: policy}},
		{name: "no network", user: Settings{Offline: true}, file: Settings{Allow: []string{"a"}}, want: Settings{Offline: true}, notes: []string{"network: ignored"}},
		{name: "no network by a policy", user: Settings{Offline: true}, file: Settings{Policy: policy}, want: Settings{Offline: true}, notes: []string{"network: ignored"}},
		{name: "policy: the person's", user: Settings{OwnPolicy: "own"}, file: Settings{Policy: policy}, want: Settings{OwnPolicy: "own"}, notes: []string{"policy: yours"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, notes, err := Merge(tt.user, tt.file, defaults, ws)
			if tt.fails {
				if bailey.CodeOf(err) != bailey.CodeUsage {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got\n%+v, %v, not\n%+v", got, err, tt.want)
			}
			var said []string
			for _, n := range notes {
				said = append(said, n.Field+": "+n.Text)
			}
			if len(said) != len(tt.notes) {
				t.Errorf("notes are %q, not %q", said, tt.notes)
				return
			}
			for i := range said {
				if !strings.Contains(said[i], tt.notes[i]) {
					t.Errorf("note %q does not say %q", said[i], tt.notes[i])
				}
			}
		})
	}
}
