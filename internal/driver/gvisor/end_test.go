package gvisor

import (
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		end       bailey.End
		complaint string
		reason    bailey.Reason
		code      int
		detail    string
	}{
		"the command's own":     {bailey.End{Reason: bailey.EndExit, ExitCode: 3}, "", bailey.EndExit, 3, ""},
		"the command's own 128": {bailey.End{Reason: bailey.EndExit, ExitCode: 128}, "", bailey.EndExit, 128, ""},
		"absent":                {bailey.End{Reason: bailey.EndExit, ExitCode: 128}, "running container: starting container: x: no such file or directory", bailey.EndNotStarted, 127, "no such file or directory"},
		"not to be executed":    {bailey.End{Reason: bailey.EndExit, ExitCode: 128}, "running container: starting container: x: permission denied", bailey.EndNotStarted, 126, "permission denied"},
		"runsc failed":          {bailey.End{Reason: bailey.EndExit, ExitCode: 128}, "running container: creating container: no", bailey.EndHostLost, 137, "gVisor: running container: creating container: no"},
		"an old complaint":      {bailey.End{Reason: bailey.EndExit, ExitCode: 1}, "running container: creating container: no", bailey.EndExit, 1, ""},
		"out of memory":         {bailey.End{Reason: bailey.EndExit, ExitCode: 137, LimitHits: []string{"memory"}}, "", bailey.EndOOM, bailey.ExitLimit, ""},
		"the cell was killed":   {bailey.End{Reason: bailey.EndSignal, ExitCode: 137, Signal: "SIGKILL"}, "", bailey.EndHostLost, 137, "what holds gVisor's kernel in its cell was killed"},
		"a timeout":             {bailey.End{Reason: bailey.EndTimeout, ExitCode: 137}, "x", bailey.EndTimeout, 137, ""},
	} {
		if e := judge(c.end, c.complaint); e.Reason != c.reason || e.ExitCode != c.code || e.Detail != c.detail {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func FuzzParseComplaint(f *testing.F) {
	f.Add([]byte(`{"msg":"a","level":"error"}{"msg":"b\n","level":"error"}{"msg":"c","level":"info"}`))
	f.Add([]byte(`{"msg":`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s := parseComplaint(b); strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
			t.Errorf("%q", s)
		}
	})
}
