//go:build linux

package engine

import (
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// TestRefusedSpecs: what makes no sense or may not be is refused, and nothing of it
// is left.
func TestRefusedSpecs(t *testing.T) {
	e := openEngine(t)
	away := Caller{Name: "key:a"}
	for name, tc := range map[string]struct {
		who  Caller
		spec api.SandboxSpec
		code bailey.Code
	}{
		"the host":           {me, api.SandboxSpec{Isolation: bailey.IsolationProcess, Mounts: []string{"/:/host:rw"}}, bailey.CodeHostRootEquivalent},
		"folder from afar":   {away, api.SandboxSpec{Workspace: "/tmp"}, bailey.CodeForbidden},
		"mount from afar":    {away, api.SandboxSpec{Mounts: []string{"/tmp"}}, bailey.CodeForbidden},
		"policy from afar":   {away, api.SandboxSpec{Isolation: bailey.IsolationProcess, Policy: []byte("17")}, bailey.CodePolicyInvalid},
		"name":               {me, api.SandboxSpec{Name: "a/b"}, bailey.CodeUsage},
		"level":              {me, api.SandboxSpec{Isolation: bailey.IsolationMicroVM}, bailey.CodeIsolationUnavailable},
		"level below least":  {me, api.SandboxSpec{Isolation: bailey.IsolationProcess, MinIsolation: bailey.IsolationContainer}, bailey.CodeUsage},
		"two grounds":        {me, api.SandboxSpec{Template: "host", Image: "x"}, bailey.CodeUsage},
		"less than nothing":  {me, api.SandboxSpec{Limits: bailey.Limits{Memory: -1}}, bailey.CodeUsage},
		"relative workdir":   {me, api.SandboxSpec{Workdir: "a"}, bailey.CodeUsage},
		"variable":           {me, api.SandboxSpec{Env: map[string]string{"A": "a\x00b"}}, bailey.CodeUsage},
		"unknown action":     {me, api.SandboxSpec{OnIdle: "sing"}, bailey.CodeUsage},
		"lease of no length": {me, api.SandboxSpec{Lease: &api.Lease{}}, bailey.CodeUsage},
	} {
		if _, err := e.Create(t.Context(), tc.who, tc.spec); bailey.CodeOf(err) != tc.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	list, _, err := e.Sandboxes(t.Context(), Caller{Admin: true}, api.SandboxQuery{States: []api.State{api.StateCreating, api.StateFailed, api.StateRunning, api.StateEnded}})
	if err != nil || len(list) > 0 {
		t.Errorf("left: %+v %v", list, err)
	}
}
