//go:build linux

package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// atLevels are the specs that most tests run with.
var atLevels = map[string]api.SandboxSpec{
	"process":   {Isolation: bailey.IsolationProcess},
	"container": {},
}

func TestCreateRunDelete(t *testing.T) {
	e := openEngine(t)
	for name, spec := range atLevels {
		t.Run(name, func(t *testing.T) {
			spec.Env = map[string]string{"FOO": "spec"}
			spec.Name = "my-" + name
			s := create(t, e, spec)
			if s.State != api.StateRunning || s.Generation != 1 || s.IsolationReason == "" || s.Isolation.String() != name {
				t.Errorf("it is %+v", s)
			}
			if out := sh(t, e, spec.Name, "echo $FOO; cat /etc/hostname; hostname; cd; echo x > f; cat f"); out != "spec\nmy-"+name+"\nmy-"+name+"\nx" {
				t.Errorf("it said %q", out)
			}
			for range 3 {
				if err := e.Delete(t.Context(), me, s.ID); err != nil {
					t.Fatal(err)
				}
			}
			got, err := e.Sandbox(t.Context(), me, s.ID)
			if err != nil || got.State != api.StateEnded || got.End == nil || got.End.Reason != bailey.EndUser || got.Ended == nil {
				t.Errorf("after its end: %+v, %v", got, err)
			}
			if _, err := e.awake(t.Context(), me, s.ID); bailey.CodeOf(err) != bailey.CodeSandboxEnded {
				t.Errorf("used after its end: %v", err)
			}
			if _, err := os.Stat(filepath.Join(e.home, sandboxesDir, s.ID)); !os.IsNotExist(err) {
				t.Errorf("its folder: %v", err)
			}
			create(t, e, spec) // the name is free again
		})
	}
}
