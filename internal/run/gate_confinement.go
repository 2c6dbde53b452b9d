package run

import (
	"context"
	"os"

	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// Confinement starts a gate in a folder of its own, and says what it has given up
// before it would read anything of a sandbox: "missing: " is before what it could
// not.
func Confinement(ctx context.Context, find func() (daemon string, err error)) ([]string, error) {
	dir, err := os.MkdirTemp("", "bailey-gate-")
	if err != nil {
		return nil, storage(err)
	}
	defer os.RemoveAll(dir)
	f, err := folder.OpenAt(dir)
	if err != nil {
		return nil, err
	}
	g, err := NewHost(f, nil).StartGateProcess(find)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	opened, err := g.Client.Open(ctx, control.Open{Sandbox: "trial"}, nil)
	if err != nil {
		return nil, g.Why(err)
	}
	return opened.Confinement, nil
}
