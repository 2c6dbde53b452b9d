package cli

import (
	"fmt"

	"github.com/bailey-sandbox/bailey/internal/cli/command"
)

func versionCommand(inv *invocation) (int, error) {
	if err := inv.Alone(); err != nil {
		return 0, err
	}
	fmt.Fprintln(inv.Stdout, "bailey", command.Version())
	return 0, nil
}
