package cli

import (
	"context"
	"encoding/json"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/changes"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// applyCommand carries a run's changes over to the host, or takes that back.
func applyCommand(inv *invocation) (int, error) {
	var opt changes.ApplyOptions
	var revert bool
	inv.Flags.SetInterspersed(true)
	inv.Flags.BoolVar(&opt.Force, "force", false, "apply also where the host has changed meanwhile")
	inv.Flags.BoolVar(&opt.Merge, "merge", false, "merge text that both sides have changed")
	inv.Flags.BoolVar(&revert, "revert", false, "take an apply back")
	inv.Flags.StringArrayVar(&opt.Select.Only, "only", nil, "these paths or patterns only")
	inv.Flags.StringArrayVar(&opt.Select.Except, "except", nil, "not these paths or patterns")
	inv.Flags.BoolVar(&inv.JSON, "json", false, "print JSON")
	args, err := inv.Parse()
	if err != nil {
		return 0, err
	}
	if revert && (opt.Force || opt.Merge || len(opt.Select.Only)+len(opt.Select.Except) > 0) {
		return 0, bailey.Errorf(bailey.CodeUsage, "take an apply back", "give --revert alone", "it is taken back as a whole")
	}
	if opt.Force && opt.Merge {
		return 0, bailey.Errorf(bailey.CodeUsage, "apply the changes", "merge first, then force what is left", "--force and --merge exclude each other")
	}
	if err := opt.Select.Check(); err != nil {
		return 0, err
	}
	ref, err := oneRun(args)
	if err != nil {
		return 0, err
	}
	f, err := openFolder()
	if err != nil {
		return 0, err
	}
	var r *folder.Run
	switch {
	case ref != "":
		r, err = f.Find(ref)
	case revert:
		r, err = latest(f, applied, "take an apply back", "no run is applied")
	default:
		r, err = latest(f, pending, "apply the changes", "no run has changes that wait")
	}
	if err != nil {
		return 0, err
	}
	if err := r.Lock(); err != nil {
		return 0, err
	}
	defer r.Close()
	ctx := context.Background()
	var rep *changes.Report
	if revert {
		err = withLog(f, func(write appender) (err error) {
			rep, err = logged(write, r.ID(), "revert", nil, func() (*changes.Report, error) { return changes.Revert(ctx, r) })
			return err
		})
	} else {
		var set *changes.Set
		if set, err = changes.Seal(ctx, r); err != nil {
			return 0, err
		}
		if err := set.Matches(opt.Select); err != nil {
			return 0, err
		}
		err = withLog(f, func(write appender) (err error) {
			rep, err = logged(write, r.ID(), "apply", set, func() (*changes.Report, error) { return changes.Apply(ctx, r, set, opt) })
			return err
		})
	}
	if err != nil {
		return 0, err
	}
	code := 0
	if len(rep.Conflicts)+len(rep.Refused)+rep.Held > 0 {
		code = bailey.ExitBailey
	}
	if inv.JSON {
		return code, json.NewEncoder(inv.Stdout).Encode(rep)
	}
	return code, rep.Write(inv.Stdout)
}

// latest finds the latest run that fits. why says that there is none.
func latest(f *folder.Folder, fits func(*folder.Run) bool, what, why string) (*folder.Run, error) {
	runs, err := f.List()
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if fits(r) {
			return r, nil
		}
	}
	return nil, bailey.Errorf(bailey.CodeNotFound, what, "`bailey changes --list` lists all runs", "%s", why)
}

// applied says whether some of a run's changes are on the host and could be
// taken back.
func applied(r *folder.Run) bool {
	return r.Err == nil && (r.State() == folder.StateApplied || changes.PartlyApplied(r))
}
