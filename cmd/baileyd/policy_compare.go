package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/policy"
)

// shownChanges is how many changes of one kind are printed for people.
const shownChanges = 50

func (f *policyFlags) diff(out io.Writer, before, after string) (int, error) {
	var p [2]*policy.Policy
	for i, name := range []string{before, after} {
		var err error
		if p[i], err = readPolicy(name); err != nil {
			return 0, err
		}
		if p[i], err = merged(p[i], f.add); err != nil {
			return 0, err
		}
	}
	d := policy.Diff(p[0], p[1])
	status := 0
	if len(d.Wider) > 0 || d.Incomplete {
		status = exitDenied
	}
	if f.asJSON {
		return status, json.NewEncoder(out).Encode(d)
	}
	for _, part := range []struct {
		title   string
		changes []policy.Change
	}{{"newly allowed, or wider", d.Wider}, {"newly denied, or narrower", d.Narrower}, {"otherwise changed", d.Other}} {
		if len(part.changes) == 0 {
			continue
		}
		fmt.Fprintf(out, "%s:\n", part.title)
		for i, c := range part.changes {
			if i == shownChanges {
				fmt.Fprintf(out, "  … and %d more; --json has all\n", len(part.changes)-i)
				break
			}
			fmt.Fprintf(out, "  %s: %s → %s\n", c.What, c.Before, c.After)
		}
	}
	if len(d.Wider)+len(d.Narrower)+len(d.Other) == 0 {
		fmt.Fprintln(out, "they decide the same")
	}
	if d.Incomplete {
		fmt.Fprintln(out, "not everything was compared: the policies tell too many kinds of requests apart")
	}
	return status, nil
}

// suiteReport is what test prints of one file.
type suiteReport struct {
	File     string           `json:"file"`
	Passed   int              `json:"passed"`
	Failures []policy.Failure `json:"failures"`
}

func (f *policyFlags) test(out io.Writer, files []string) (int, error) {
	status := 0
	for _, name := range files {
		report, err := f.testOne(name)
		if err != nil {
			return 0, err
		}
		if len(report.Failures) > 0 {
			status = exitDenied
		}
		if f.asJSON {
			if err := json.NewEncoder(out).Encode(report); err != nil {
				return 0, err
			}
			continue
		}
		for _, x := range report.Failures {
			fmt.Fprintf(out, "%s:%d: %s: want %s, got %s (%s)\n", name, x.Line, x.What, x.Want, x.Got, x.Why)
		}
		fmt.Fprintf(out, "%s: %d passed, %d failed\n", name, report.Passed, len(report.Failures))
	}
	return status, nil
}

func (f *policyFlags) testOne(name string) (suiteReport, error) {
	text, err := readDocument(name)
	if err != nil {
		return suiteReport{}, err
	}
	s, err := policy.ParseSuite(text)
	if err != nil {
		return suiteReport{}, policyError(name, err)
	}
	var p *policy.Policy
	file := f.file
	if file == "" && s.Policy != "" {
		file = s.Policy
		if !filepath.IsAbs(file) && name != "-" {
			file = filepath.Join(filepath.Dir(name), file)
		}
	}
	if file != "" {
		if p, err = readPolicy(file); err != nil {
			return suiteReport{}, err
		}
	}
	if p, err = merged(p, s.Flags); err != nil {
		return suiteReport{}, err
	}
	if p, err = merged(p, f.add); err != nil {
		return suiteReport{}, err
	}
	failures, err := s.Run(p)
	if err != nil {
		return suiteReport{}, policyError(name, err)
	}
	return suiteReport{name, s.Len() - len(failures), failures}, nil
}
