package run

import (
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
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
		{"a minimum nobody has", Ask{Min: bailey.IsolationMicroVM}, auto, bailey.CodeIsolationUnavailable},
		{"a level nobody has", Ask{Level: bailey.IsolationGVisor}, auto, bailey.CodeIsolationUnavailable},
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
