package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json`, as `go doc test2json` describes it.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output, in place of Package
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// outcome is what became of one test in one pass.
type outcome struct {
	action string // pass, fail, skip
	reason string // of a skip
	said   string // the end of what it said, of a failure
}

// mostSaid is how many lines of a failure are told again at the end, where whoever
// reads only the end of a long log finds them.
const mostSaid = 25

// endOf gives the last lines of what a test said.
func endOf(output []string) string {
	lines := strings.SplitAfter(strings.Join(output, ""), "\n")
	return strings.Join(lines[max(0, len(lines)-1-mostSaid):], "")
}

// results holds what the tests did, over all passes.
type results struct {
	tests map[key]map[string]outcome    // → pass name → outcome
	times map[string]map[string]float64 // package → pass name → seconds
	order []string                      // pass names
}

func newResults() *results {
	return &results{tests: map[key]map[string]outcome{}, times: map[string]map[string]float64{}}
}

// reader takes one pass's events in.
type reader struct {
	into    *results
	pass    string
	out     io.Writer
	output  map[key][]string // of tests and packages that have not ended
	started map[key]bool     // tests that began and have not ended
	broken  map[string]bool  // packages that failed outside any test
	faults  []string
}

func (r *results) reader(pass string, out io.Writer) *reader {
	r.order = append(r.order, pass)
	return &reader{into: r, pass: pass, out: out, output: map[key][]string{}, started: map[key]bool{}, broken: map[string]bool{}}
}

// key names a test; test is "" for the package itself.
type key struct{ pkg, test string }

func (k key) String() string { return k.pkg + "." + k.test }

func (r *reader) read(in io.Reader) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprint(r.out, string(line))
			} else {
				r.take(e)
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *reader) take(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "run":
		r.started[k] = true
	case "output":
		r.output[k] = append(r.output[k], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packageEnd(e)
			return
		}
		delete(r.started, k)
		o := outcome{action: e.Action}
		if e.Action == "skip" {
			o.reason = skipReason(r.output[k])
		}
		if e.Action == "fail" {
			o.said = endOf(r.output[k])
			fmt.Fprintf(r.out, "--- %s: %s\n%s", r.pass, k, strings.Join(r.output[k], ""))
		}
		if r.into.tests[k] == nil {
			r.into.tests[k] = map[string]outcome{}
		}
		r.into.tests[k][r.pass] = o
		delete(r.output, k)
	}
}

func (r *reader) packageEnd(e event) {
	k := key{e.Package, ""}
	cut := false
	for t := range r.started { // a panic or timeout ends the binary in the middle of tests
		if t.pkg == e.Package {
			cut = true
			delete(r.started, t)
			if r.into.tests[t] == nil {
				r.into.tests[t] = map[string]outcome{}
			}
			r.into.tests[t][r.pass] = outcome{action: "fail", said: "it did not end\n" + endOf(r.output[t])}
			fmt.Fprintf(r.out, "--- %s: %s did not end\n%s", r.pass, t, strings.Join(r.output[t], ""))
		}
	}
	if r.into.times[e.Package] == nil {
		r.into.times[e.Package] = map[string]float64{}
	}
	r.into.times[e.Package][r.pass] = e.Elapsed
	passed, failed, skipped := 0, 0, 0
	for t, by := range r.into.tests {
		if o, ok := by[r.pass]; ok && t.pkg == e.Package {
			switch o.action {
			case "pass":
				passed++
			case "fail":
				failed++
			default:
				skipped++
			}
		}
	}
	if e.Action == "fail" {
		fmt.Fprint(r.out, strings.Join(r.output[k], ""))
		if failed == 0 {
			r.faults = append(r.faults, e.Package+" failed outside any test")
		}
		if failed == 0 || cut {
			r.broken[e.Package] = true
		}
	}
	delete(r.output, k)
	if e.Action == "skip" && passed+failed+skipped == 0 {
		return // it has no tests
	}
	word := map[string]string{"pass": "ok  ", "fail": "FAIL", "skip": "-   "}[e.Action]
	fmt.Fprintf(r.out, "%s %s: %s (%.1fs: %d passed, %d failed, %d skipped)\n", word, r.pass, e.Package, e.Elapsed, passed, failed, skipped)
}

// skipReason finds what the test said when it skipped itself: the last line of
// the form "    file.go:12: text".
func skipReason(output []string) string {
	text := strings.Join(output, "")
	reason := ""
	for line := range strings.SplitSeq(text, "\n") {
		t := strings.TrimSpace(line)
		if strings.HasPrefix(t, "=== ") || strings.HasPrefix(t, "--- ") || t == "" {
			continue
		}
		if at, said, ok := strings.Cut(t, ": "); ok && strings.Contains(at, ".go:") && !strings.ContainsAny(at, " \t") {
			reason = said
		}
	}
	return reason
}

// passed counts the tests that failed nowhere and passed somewhere.
func (r *results) passed() (n int) {
	for _, by := range r.tests {
		if !hasAction(by, "fail") && hasAction(by, "pass") {
			n++
		}
	}
	return n
}

func (r *results) failed() []key {
	return r.with(func(by map[string]outcome) bool { return hasAction(by, "fail") })
}

// skippedEverywhere lists the tests that no pass ran.
func (r *results) skippedEverywhere() []key {
	return r.with(func(by map[string]outcome) bool { return !hasAction(by, "fail") && !hasAction(by, "pass") })
}

func (r *results) with(f func(map[string]outcome) bool) (out []key) {
	for k, by := range r.tests {
		if f(by) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b key) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test)) })
	return out
}

func (r *results) failedIn(pass string) bool {
	for _, by := range r.tests {
		if by[pass].action == "fail" {
			return true
		}
	}
	return false
}

func hasAction(by map[string]outcome, action string) bool {
	for _, o := range by {
		if o.action == action {
			return true
		}
	}
	return false
}

func (r *results) reasonOf(k key) string {
	var out []string
	for _, p := range r.order {
		if o, ok := r.tests[k][p]; ok && o.reason != "" && !slices.Contains(out, o.reason) {
			out = append(out, o.reason)
		}
	}
	return strings.Join(out, "; ")
}

// printFailure tells in which passes a test failed, and what it said there.
func (r *results) printFailure(w io.Writer, k key) {
	for _, pass := range r.order {
		if o := r.tests[k][pass]; o.action == "fail" {
			fmt.Fprintf(w, "failed: %s: %s\n%s", pass, k, o.said)
		}
	}
}

// printTimes tells what the packages that take long took, the longest first.
func (r *results) printTimes(w io.Writer) {
	const long = 10 // seconds
	total := map[string]float64{}
	var names []string
	for p, by := range r.times {
		for _, t := range by {
			total[p] += t
		}
		if total[p] >= long {
			names = append(names, p)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(total[b], total[a]) })
	for _, p := range names {
		fmt.Fprintf(w, "%-70s", p)
		for _, pass := range r.order {
			if t, ok := r.times[p][pass]; ok {
				fmt.Fprintf(w, "  %s %v", pass, time.Duration(t*float64(time.Second)).Round(100*time.Millisecond))
			}
		}
		fmt.Fprintln(w)
	}
}
