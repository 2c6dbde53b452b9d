package cli

import (
	"fmt"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// discardCommand throws runs away.
func discardCommand(inv *invocation) (int, error) {
	var all bool
	inv.Flags.SetInterspersed(true)
	inv.Flags.BoolVar(&all, "all", false, "every run that nobody is working on")
	args, err := inv.Parse()
	if err != nil {
		return 0, err
	}
	if all && len(args) > 0 {
		return 0, bailey.Errorf(bailey.CodeUsage, "discard runs", "give either --all or a run", "--all means every run, and %q names one", args[0])
	}
	ref, err := oneRun(args)
	if err != nil {
		return 0, err
	}
	f, err := openFolder()
	if err != nil {
		return 0, err
	}
	if all {
		return 0, withLog(f, func(write appender) error { return discardAll(inv, write, f) })
	}
	var r *folder.Run
	if ref == "" {
		r, err = latest(f, pending, "discard the changes", "no run has changes that wait")
	} else {
		r, err = f.Find(ref)
	}
	if r == nil {
		return 0, err
	}
	// A run whose record cannot be read can be thrown away all the same.
	if err := r.Lock(); bailey.CodeOf(err) == bailey.CodeBusy {
		return 0, err
	}
	defer r.Close()
	onHost := applied(r)
	if err := withLog(f, func(write appender) error { return discardLogged(write, r) }); err != nil {
		return 0, err
	}
	fmt.Fprintln(inv.Stdout, "discarded", r.ID())
	if onHost {
		fmt.Fprintln(inv.Stdout, "what was applied of it stays on the host, and can no longer be taken back")
	}
	return 0, nil
}

func discardAll(inv *invocation, write appender, f *folder.Folder) error {
	runs, err := f.List()
	if err != nil {
		return err
	}
	for _, r := range runs {
		if bailey.CodeOf(r.Lock()) == bailey.CodeBusy {
			continue
		}
		err := discardLogged(write, r)
		r.Close()
		if err != nil {
			return err
		}
		fmt.Fprintln(inv.Stdout, r.ID())
	}
	return nil
}
