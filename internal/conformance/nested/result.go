//go:build linux

package nested

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested/plan"
)

// Result is what came of a run.
type Result struct {
	Kernel string // the release that ran
	Steps  []*StepResult

	out io.Writer
}

// StepResult is what came of one step.
type StepResult struct {
	Name   string
	Output []byte
	Ended  bool
	Code   int
	// Passed, Failed and Skipped are the names of tests, not those of their parts.
	Passed, Failed, Skipped []string

	part []byte // of a line
}

func newResult(p plan.Plan, out io.Writer) *Result {
	r := &Result{out: out}
	for _, s := range p.Steps {
		r.Steps = append(r.Steps, &StepResult{Name: s.Name})
	}
	return r
}

func (r *Result) event(e plan.Event) {
	if e.Kernel != "" {
		r.Kernel = e.Kernel
		fmt.Fprintln(r.out, "== Linux", e.Kernel)
	}
	if e.Step < 0 || e.Step >= len(r.Steps) {
		return
	}
	s := r.Steps[e.Step]
	if len(e.Output) > 0 {
		if len(s.Output) == 0 {
			fmt.Fprintln(r.out, "==", s.Name)
		}
		s.Output = append(s.Output, e.Output...)
		_, _ = r.out.Write(e.Output)
		s.read(e.Output)
	}
	if e.Ended {
		s.Ended, s.Code = true, e.Code
		fmt.Fprintf(r.out, "== %s: exit code %d\n", s.Name, e.Code)
	}
}

// read counts the tests of whole lines.
func (s *StepResult) read(b []byte) {
	s.part = append(s.part, b...)
	for {
		i := bytes.IndexByte(s.part, '\n')
		if i < 0 {
			return
		}
		line := string(s.part[:i])
		s.part = s.part[i+1:]
		for word, list := range map[string]*[]string{"PASS": &s.Passed, "FAIL": &s.Failed, "SKIP": &s.Skipped} {
			if name, ok := strings.CutPrefix(line, "--- "+word+": "); ok {
				name, _, _ = strings.Cut(name, " ")
				*list = append(*list, name)
			}
		}
	}
}

// Ok says whether every step ended well.
func (r *Result) Ok() bool {
	for _, s := range r.Steps {
		if !s.Ended || s.Code != 0 || len(s.Failed) > 0 {
			return false
		}
	}
	return true
}

// Summary says in a few lines what failed, and last how many tests did what.
func (r *Result) Summary() string {
	var b strings.Builder
	var passed, failed, skipped int
	for _, s := range r.Steps {
		passed, failed, skipped = passed+len(s.Passed), failed+len(s.Failed), skipped+len(s.Skipped)
		for _, name := range s.Failed {
			fmt.Fprintf(&b, "FAIL %s %s\n", s.Name, name)
		}
		if !s.Ended || s.Code != 0 && len(s.Failed) == 0 {
			failed++
			fmt.Fprintf(&b, "FAIL %s: ended %v, exit code %d\n", s.Name, s.Ended, s.Code)
		}
	}
	fmt.Fprintf(&b, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return b.String()
}
