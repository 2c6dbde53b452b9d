package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write makes a module of the given files and goes there.
func write(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.test\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// suiteOver runs one pass over a module.
func suiteOver(t *testing.T, files map[string]string, root bool) *suite {
	t.Helper()
	write(t, files)
	s := &suite{results: newResults()}
	declared, err := declaredTests(t.Context(), []string{"./..."})
	if err != nil {
		t.Fatal(err)
	}
	p := &pass{name: "p", root: root, env: []string{"CGO_ENABLED=0"}, temp: t.TempDir()}
	s.runPass(t.Context(), p, declared)
	return s
}

func wantFaults(t *testing.T, s *suite, words ...string) {
	t.Helper()
	for _, w := range words {
		if !slices.ContainsFunc(s.faults, func(f string) bool { return strings.Contains(f, w) }) {
			t.Errorf("no fault says %q", w)
		}
	}
	if len(s.faults) != len(words) {
		t.Errorf("%d faults, wanted %d:\n%s", len(s.faults), len(words), strings.Join(s.faults, "\n"))
	}
}

func TestPassCounts(t *testing.T) {
	s := suiteOver(t, map[string]string{"a/a_test.go": `package a
import "testing"
func TestGood(t *testing.T) { t.Run("x.y", func(t *testing.T) {}) }
func TestBad(t *testing.T)  { t.Error("wrong") }
func TestRoot(t *testing.T) { t.Skip("needs root: mounting") }
func FuzzSeeds(f *testing.F) { f.Add("x"); f.Fuzz(func(t *testing.T, s string) {}) }
`}, false)
	wantFaults(t, s)
	if p, f, k := s.results.passed(), s.results.failed(), s.results.skippedEverywhere(); p != 4 || len(f) != 1 || f[0].test != "TestBad" || len(k) != 1 || k[0].test != "TestRoot" {
		t.Errorf("passed %d, failed %v, skipped %v", p, f, k)
	}
	if s.finish(nil) == 0 {
		t.Error("the suite succeeded")
	}
}

func TestPassSkipsThatCouldHaveRun(t *testing.T) {
	s := suiteOver(t, map[string]string{"a/a_test.go": `package a
import "testing"
func TestRoot(t *testing.T)    { t.Skip("needs root: mounting") }
func TestUser(t *testing.T)    { t.Skip("needs an ordinary user: it is refused") }
func TestSilent(t *testing.T)  { t.SkipNow() }
func TestLater(t *testing.T)   { t.Skip("flaky on Mondays") }
func TestShell(t *testing.T)   { t.Skip("needs tool sh") }
func TestAbsent(t *testing.T)  { t.Skip("needs tool no-such-program") }
func TestUnknown(t *testing.T) { t.Skip("needs host moon-phase: it is waning") }
func TestCaller(t *testing.T)  {}
func TestFine(t *testing.T)    { t.Skip("part of TestCaller") }
func TestOrphan(t *testing.T)  { t.Skip("part of TestNobody") }
func TestNotHere(t *testing.T) { t.Skip("part of TestUser") }
func TestLoop(t *testing.T)    { t.Skip("part of TestLoop") }
func TestInner(t *testing.T)   { t.Run("sub", func(t *testing.T) { t.Log("x: y"); t.Skip("because") }) }
`}, true)
	wantFaults(t, s, "TestRoot", "TestSilent", "TestLater", "TestShell", "TestUnknown", "TestOrphan", "TestLoop", "TestInner/sub")
}

func TestPassTestsThatDidNotRun(t *testing.T) {
	s := suiteOver(t, map[string]string{
		"quiet/quiet_test.go": `package quiet
import ("os"; "testing")
func TestMain(m *testing.M) { os.Exit(0) }
func TestOne(t *testing.T)  { t.Error("never seen") }
`,
		"panics/panics_test.go": `package panics
import "testing"
func TestFirst(t *testing.T)  {}
func TestPanics(t *testing.T) { panic("no") }
func TestAfter(t *testing.T)  {}
`,
		"dies/dies_test.go": `package dies
import ("os"; "testing")
func TestDies(t *testing.T) { os.Exit(0) }
`,
		"broken/broken_test.go": "package broken\nfunc TestX(t *testing.T) {}\n",
	}, false)
	for _, want := range []string{"quiet.TestOne is declared", "broken"} {
		if !slices.ContainsFunc(s.faults, func(f string) bool { return strings.Contains(f, want) }) {
			t.Errorf("no fault says %q in %q", want, s.faults)
		}
	}
	var failed []string
	for _, k := range s.results.failed() {
		failed = append(failed, k.test)
	}
	slices.Sort(failed)
	if !slices.Equal(failed, []string{"TestDies", "TestPanics"}) {
		t.Errorf("failed: %v", failed)
	}
	var told strings.Builder
	s.results.printFailure(&told, s.results.failed()[1])
	if !strings.Contains(told.String(), "panics.TestPanics") || !strings.Contains(told.String(), "panic: no") {
		t.Errorf("it is told as %q", &told)
	}
}

func TestPassThatLeavesFiles(t *testing.T) {
	s := suiteOver(t, map[string]string{"a/a_test.go": `package a
import ("os"; "testing")
func TestLeaves(t *testing.T) { if _, err := os.MkdirTemp("", "left-"); err != nil { t.Fatal(err) } }
`}, false)
	wantFaults(t, s, "left in the temporary folder: left-")
}

func TestDeclaredTests(t *testing.T) {
	write(t, map[string]string{"a/a_test.go": `package a
import ("testing"; "fmt")
type T struct{}
func (T) TestMethod(t *testing.T) {}
func TestMain(m *testing.M) { m.Run() }
func Test(t *testing.T) {}
func Testify(t *testing.T) {}
func TestÄ(t *testing.T) {}
func Test_x(t *testing.T) {}
func BenchmarkX(b *testing.B) {}
func FuzzX(f *testing.F) {}
func ExampleX() {
	fmt.Println("x")
	// Output: x
}
func ExampleY() { fmt.Println("only compiled") }
`, "a/b_windows_test.go": "package a\nimport \"testing\"\nfunc TestWindows(t *testing.T) {}\n", "b/b.go": "package b\n"})
	got, err := declaredTests(t.Context(), []string{"./..."})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Test", "TestÄ", "Test_x", "FuzzX", "ExampleX"}
	if !slices.Equal(got["example.test/a"], want) || len(got) != 1 {
		t.Errorf("declared: %v", got)
	}
}
