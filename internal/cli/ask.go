package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/changes"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// ask asks a person on a terminal what is to become of the changes. No answer,
// as when the terminal goes away or with Ctrl-C, keeps them.
func ask(ctx context.Context, inv *invocation, r *folder.Run, set *changes.Set) (fate, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return answer(ctx, os.Stdin, inv.Stderr, func() error {
		return changes.Diff(ctx, r, set, inv.Stderr, changes.DiffOptions{Escape: true})
	})
}

// answer asks until there is an answer, or none to come. A read of in may go
// on when ctx has ended: the process is about to end as well.
func answer(ctx context.Context, in io.Reader, out io.Writer, show func() error) (fate, error) {
	type reply struct {
		line string
		err  error
	}
	replies := make(chan reply, 1)
	lines := bufio.NewReader(in)
	for {
		fmt.Fprint(out, "bailey: [a]pply, [d]iscard, [k]eep or [s]how? ")
		go func() {
			line, err := lines.ReadString('\n')
			replies <- reply{line, err}
		}()
		var got reply
		select {
		case <-ctx.Done():
			fmt.Fprintln(out)
			return fateKept, nil
		case got = <-replies:
		}
		switch strings.ToLower(strings.TrimSpace(got.line)) {
		case "a", "apply":
			return fateApplied, nil
		case "d", "discard":
			return fateDiscarded, nil
		case "k", "keep":
			return fateKept, nil
		case "s", "show":
			if err := show(); err != nil && ctx.Err() == nil {
				return fateKept, err
			}
		}
		if got.err != nil {
			fmt.Fprintln(out)
			return fateKept, nil
		}
	}
}
