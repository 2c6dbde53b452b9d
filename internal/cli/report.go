package cli

import (
	"github.com/bailey-sandbox/bailey/internal/run"
)

func (f *runFlags) report(inv *invocation, out *run.Outcome) (int, error) {
	if err := run.StartError(f.Command[0], out.End); err != nil {
		inv.fail(err)
	}
	return out.End.Code(), nil
}
