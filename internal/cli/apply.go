package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/changes"
)

// applyCommand carries a run's changes over to the host, or takes that back.
func applyCommand(inv *invocation) (int, error) {
	var opt changes.ApplyOptions
	var revert bool
	inv.flags.SetInterspersed(true)
	inv.flags.BoolVar(&opt.Force, "force", false, "apply also where the host has changed meanwhile")
	inv.flags.BoolVar(&opt.Merge, "merge", false, "merge text that both sides have changed")
	inv.flags.BoolVar(&revert, "revert", false, "take an apply back")
	inv.flags.StringArrayVar(&opt.Select.Only, "only", nil, "these paths or patterns only")
	inv.flags.StringArrayVar(&opt.Select.Except, "except", nil, "not these paths or patterns")
	inv.flags.BoolVar(&inv.json, "json", false, "print JSON")
	args, err := inv.parse()
	if err != nil {
		return 0, err
	}
	if revert && (opt.Force || opt.Merge || len(opt.Select.Only)+len(opt.Select.Except) > 0) {
		return 0, bailey.Errorf(bailey.CodeUsage, "take an apply back", "give --revert alone", "it is taken back as a whole")
	}
	ref, err := oneRun(args)
	if err != nil {
		return 0, err
	}
	if ref == "" {
		ref = "latest"
	}
	r, err := lockRun(ref)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	ctx := context.Background()
	var rep *changes.Report
	if revert {
		rep, err = changes.Revert(ctx, r)
	} else {
		var set *changes.Set
		if set, err = changes.Seal(ctx, r); err != nil {
			return 0, err
		}
		rep, err = changes.Apply(ctx, r, set, opt)
	}
	if err != nil {
		return 0, err
	}
	code := 0
	if len(rep.Conflicts)+len(rep.Refused) > 0 {
		code = bailey.ExitBailey
	}
	if inv.json {
		return code, json.NewEncoder(inv.stdout).Encode(rep)
	}
	return code, rep.Write(inv.stdout)
}

// discardCommand throws runs away.
func discardCommand(inv *invocation) (int, error) {
	var all bool
	inv.flags.SetInterspersed(true)
	inv.flags.BoolVar(&all, "all", false, "every run that nobody is working on")
	args, err := inv.parse()
	if err != nil {
		return 0, err
	}
	f, err := openFolder()
	if err != nil {
		return 0, err
	}
	if all {
		runs, err := f.List()
		if err != nil {
			return 0, err
		}
		for _, r := range runs {
			if bailey.CodeOf(r.Lock()) == bailey.CodeBusy {
				continue
			}
			err := r.Remove()
			r.Close()
			if err != nil {
				return 0, err
			}
			fmt.Fprintln(inv.stdout, r.ID())
		}
		return 0, nil
	}
	ref, err := oneRun(args)
	if err != nil {
		return 0, err
	}
	if ref == "" {
		ref = "latest"
	}
	r, err := f.Find(ref)
	if r == nil {
		return 0, err
	}
	// A run whose record cannot be read can be thrown away all the same.
	if err := r.Lock(); bailey.CodeOf(err) == bailey.CodeBusy {
		return 0, err
	}
	defer r.Close()
	if err := r.Remove(); err != nil {
		return 0, err
	}
	fmt.Fprintln(inv.stdout, "discarded", r.ID())
	return 0, nil
}
