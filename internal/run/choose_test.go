package run

import (
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

func TestChoose(t *testing.T) {
	const (
		auto      = bailey.IsolationAuto
		process   = bailey.IsolationProcess
		container = bailey.IsolationContainer
	)
	for _, tc := range []struct {
		name string
		ask  Ask
		want bailey.Isolation
		code bailey.Code
	}{
		{"nothing asked", Ask{}, process, ""},
		{"an image", Ask{Root: true}, container, ""},
		{"a stronger minimum", Ask{Min: container}, container, ""},
		{"a weaker minimum", Ask{Min: bailey.IsolationInterpreter}, process, ""},
		{"asked", Ask{Level: container}, container, ""},
		{"asked, and stronger than the minimum", Ask{Level: container, Min: process}, container, ""},
		{"asked, and weaker than the minimum", Ask{Level: process, Min: container}, auto, bailey.CodeUsage},
		{"a strong minimum", Ask{Min: bailey.IsolationMicroVM}, bailey.IsolationMicroVM, ""},
		{"a kernel of its own", Ask{Level: bailey.IsolationGVisor}, bailey.IsolationGVisor, ""},
		{"a kernel of its own for an image", Ask{Level: bailey.IsolationGVisor, Root: true}, bailey.IsolationGVisor, ""},
		{"a minimum nobody has", Ask{Min: bailey.IsolationMachine}, auto, bailey.CodeIsolationUnavailable},
		{"a level nobody has", Ask{Level: bailey.IsolationMachine}, auto, bailey.CodeIsolationUnavailable},
		{"the interpreter", Ask{Level: bailey.IsolationInterpreter}, auto, bailey.CodeIsolationUnavailable},
		{"process with an image", Ask{Level: process, Root: true}, auto, bailey.CodeUsage},
		{"an image and a minimum nobody has", Ask{Root: true, Min: bailey.IsolationGVisor}, auto, bailey.CodeUsage},
	} {
		got, reason, err := Choose(tc.ask)
		if got != tc.want || bailey.CodeOf(err) != tc.code {
			t.Errorf("%s: %s, %v; want %s, code %q", tc.name, got, err, tc.want, tc.code)
		}
		if (err == nil) != (reason != "") {
			t.Errorf("%s: reason %q with error %v", tc.name, reason, err)
		}
		// Weakening is never silent: what is chosen is never below the minimum.
		if err == nil && got < tc.ask.Min {
			t.Errorf("%s: %s is below %s", tc.name, got, tc.ask.Min)
		}
	}
}

func TestStrongest(t *testing.T) {
	const (
		container = bailey.IsolationContainer
		gvisor    = bailey.IsolationGVisor
		microvm   = bailey.IsolationMicroVM
	)
	can := driver.Capabilities{Available: true, Limits: []string{"memory"}}
	emulated, noMounts, noLimits, absent := can, can, can, driver.Capabilities{Why: "runsc is not there"}
	emulated.Emulated = true
	noMounts.Lacks = []driver.Need{driver.NeedMounts}
	noLimits.Limits = nil
	for _, tc := range []struct {
		name   string
		offers []Offer
		need   Need
		want   bailey.Isolation
		says   string
		code   bailey.Code
	}{
		{"the strongest", []Offer{{container, can}, {gvisor, can}, {microvm, can}}, Need{}, microvm, "", ""},
		{"in any order", []Offer{{microvm, can}, {container, can}, {gvisor, can}}, Need{}, microvm, "", ""},
		{"not an emulated one", []Offer{{container, can}, {gvisor, can}, {microvm, emulated}}, Need{}, gvisor, "microvm is emulated", ""},
		{"what is there", []Offer{{container, can}, {gvisor, absent}}, Need{}, container, "gvisor: runsc is not there", ""},
		{"what can do it", []Offer{{container, can}, {gvisor, noMounts}}, Need{Things: []driver.Need{driver.NeedMounts}}, container, "gvisor has no mounts", ""},
		{"what is not needed", []Offer{{container, can}, {gvisor, noMounts}}, Need{Things: []driver.Need{driver.NeedVolumes}}, gvisor, "", ""},
		{"a limit", []Offer{{container, can}, {gvisor, noLimits}}, Need{Limits: []string{"memory"}}, container, "gvisor cannot limit memory", ""},
		{"a minimum", []Offer{{container, can}, {gvisor, noMounts}}, Need{Min: gvisor, Things: []driver.Need{driver.NeedMounts}}, 0, "gvisor has no mounts", bailey.CodeIsolationUnavailable},
		{"a minimum that only an emulated one has", []Offer{{container, can}, {microvm, emulated}}, Need{Min: microvm}, 0, "microvm is emulated", bailey.CodeIsolationUnavailable},
		{"nothing", nil, Need{}, 0, "", bailey.CodeIsolationUnavailable},
	} {
		got, reason, err := Strongest(tc.offers, tc.need)
		text := reason
		if err != nil {
			text = err.Error()
		}
		if got != tc.want || bailey.CodeOf(err) != tc.code || !strings.Contains(text, tc.says) {
			t.Errorf("%s: %s, %q, %v", tc.name, got, reason, err)
		}
	}
}

func TestStartError(t *testing.T) {
	absent := bailey.End{Reason: bailey.EndNotStarted, ExitCode: 127, Detail: "no such file or directory"}
	image := &rootfs.Root{Kind: rootfs.KindOCI}
	for _, tc := range []struct {
		req  Request
		end  bailey.End
		code bailey.Code
		says string
	}{
		{Request{}, bailey.End{Reason: bailey.EndExit, ExitCode: 127}, "", ""},
		{Request{}, absent, bailey.CodeCommandNotFound, "on PATH inside"},
		{Request{Level: bailey.IsolationContainer, Rootfs: image}, absent, bailey.CodeCommandNotFound, "the image has no x"},
		{Request{Level: bailey.IsolationContainer, Rootfs: &rootfs.Root{Kind: rootfs.KindHost}}, absent, bailey.CodeCommandNotFound, "/usr alone"},
		{Request{Command: []string{"./x"}}, absent, bailey.CodeCommandNotFound, "interpreter"},
		{Request{Command: []string{"/x"}, Level: bailey.IsolationContainer, Rootfs: image}, absent, bailey.CodeCommandNotFound, "interpreter"},
		{Request{}, bailey.End{Reason: bailey.EndNotStarted, ExitCode: 126, Detail: "exec format error"}, bailey.CodeCommandNotExecutable, "exec format error"},
	} {
		if tc.req.Command == nil {
			tc.req.Command = []string{"x\x1b"}
		}
		err := StartError(tc.req, tc.end)
		if bailey.CodeOf(err) != tc.code || err != nil && (!strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%+v: %v", tc.end, err)
		}
	}
}
