package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/changes"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// ask asks a person on a terminal what is to become of the changes. No answer,
// as when the terminal goes away, keeps them.
func ask(ctx context.Context, inv *invocation, r *folder.Run, set *changes.Set) (fate, error) {
	in := bufio.NewReader(os.Stdin)
	for {
		fmt.Fprint(inv.stderr, "bailey: [a]pply, [d]iscard, [k]eep or [s]how? ")
		line, err := in.ReadString('\n')
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "a", "apply":
			return fateApplied, nil
		case "d", "discard":
			return fateDiscarded, nil
		case "k", "keep":
			return fateKept, nil
		case "s", "show":
			if err := changes.Diff(ctx, r, set, inv.stderr, changes.DiffOptions{Escape: true}); err != nil {
				return fateKept, err
			}
		}
		if err != nil {
			fmt.Fprintln(inv.stderr)
			return fateKept, nil
		}
	}
}
