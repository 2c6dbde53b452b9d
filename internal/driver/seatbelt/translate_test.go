package seatbelt

import (
	"os"
	"reflect"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

func spec(places ...driver.Place) driver.Spec {
	return driver.Spec{
		Level: bailey.IsolationProcess, Root: driver.Root{Places: places},
		Workdir: "/Users/ada/work/sub", Env: []string{"HOME=/Users/ada", "PATH=/usr/bin:/Users/ada/bin", "PWD=/Users/ada/work/sub", "LANG=C", "BARE"},
		Entry: driver.Entry{Command: []string{"make"}},
	}
}

func TestTranslate(t *testing.T) {
	got, err := Translate(spec(
		driver.Place{Kind: driver.Dir, Target: "/Users"},
		driver.Place{Kind: driver.Bind, Source: "/usr", Target: "/usr", ReadOnly: true, IsDir: true},
		driver.Place{Kind: driver.Scratch, Source: "/data/home", Target: "/Users/ada", IsDir: true},
		driver.Place{Kind: driver.CoW, Target: "/Users/ada/work", Overlay: &driver.Overlay{Lower: []string{"/Users/ada/work"}, Layer: "/data/run/1"}},
		driver.Place{Kind: driver.Bind, Source: "/srv/shared", Target: "/srv/shared"},
		driver.Place{Kind: driver.Bind, Source: "/srv/shared/fixed", Target: "/srv/shared/fixed", ReadOnly: true},
		driver.Place{Kind: driver.Mask, Target: "/Users/ada/work/secret"},
		driver.Place{Kind: driver.Mask, Target: "/usr/private"},
	))
	if err != nil {
		t.Fatal(err)
	}
	want := Plan{
		Profile: Profile{
			Read:    []string{"/usr"},
			Write:   []string{"/data/home", "/data/run/1/copy", "/srv/shared"},
			Protect: []string{"/srv/shared/fixed"},
			Deny:    []string{"/data/run/1/copy/secret", "/usr/private"},
		},
		Clones:  []Clone{{From: "/Users/ada/work", To: "/data/run/1/copy"}},
		Workdir: "/data/run/1/copy/sub",
		Env:     []string{"HOME=/data/home", "PATH=/usr/bin:/data/home/bin", "PWD=/data/run/1/copy/sub", "LANG=C", "BARE="},
		Command: []string{"make"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestTranslateRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*driver.Spec)
		code   bailey.Code
	}{
		{"container", func(s *driver.Spec) { s.Level = bailey.IsolationContainer }, bailey.CodeIsolationUnavailable},
		{"root", func(s *driver.Spec) { s.Root.Base = &driver.Overlay{} }, bailey.CodeNotAvailable},
		{"mount", func(s *driver.Spec) { s.Mount = os.Stdin }, bailey.CodeNotAvailable},
		{"outlet", func(s *driver.Spec) { s.Outlet = true }, bailey.CodeNotAvailable},
		{"agent", func(s *driver.Spec) { s.Entry = driver.Entry{Agent: "/x"} }, bailey.CodeNotAvailable},
		{"cpus", func(s *driver.Spec) { s.Limits.CPUs = 1 }, bailey.CodeLimitUnavailable},
		{"memory", func(s *driver.Spec) { s.Limits.Memory = 1 }, bailey.CodeLimitUnavailable},
		{"pids", func(s *driver.Spec) { s.Limits.Pids = 1 }, bailey.CodeLimitUnavailable},
		{"disk", func(s *driver.Spec) { s.Limits.Disk = 1 }, bailey.CodeLimitUnavailable},
		{"io", func(s *driver.Spec) { s.Limits.IO = 1 }, bailey.CodeLimitUnavailable},
		{"layer in memory", func(s *driver.Spec) {
			s.Root.Places = []driver.Place{{Kind: driver.CoW, Target: "/w", Overlay: &driver.Overlay{Lower: []string{"/w"}}}}
		}, bailey.CodeNotAvailable},
		{"kind", func(s *driver.Spec) { s.Root.Places = []driver.Place{{Kind: 99}} }, bailey.CodeNotAvailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spec()
			c.change(&s)
			if _, err := Translate(s); bailey.CodeOf(err) != c.code {
				t.Errorf("got %v, want %s", err, c.code)
			}
		})
	}
	s := spec()
	s.Limits.Timeout, s.Limits.Output, s.Defaults = 1, 1, bailey.DefaultLimits
	if _, err := Translate(s); err != nil {
		t.Errorf("defaults are refused: %v", err)
	}
}
