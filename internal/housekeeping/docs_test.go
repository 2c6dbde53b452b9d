package housekeeping

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are what a person reads.
func documents(t *testing.T) []file {
	t.Helper()
	return files(t, ".md")
}

func document(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(top, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// marker names the test that backs a claim: its package's folder, a dot, the
// function.
//
//   - A claim. <!-- test: internal/run.TestSomething -->
var marker = regexp.MustCompile(`<!-- test: (\S+)\.((?:Test|Fuzz|Example)\w+) -->`)

func TestClaimsNameTestsThatExist(t *testing.T) {
	n := 0
	for _, d := range documents(t) {
		if c := strings.Count(d.text, "<!-- test:"); c != len(marker.FindAllString(d.text, -1)) {
			t.Errorf("%s has a marker that is not of the form <!-- test: folder.TestName -->", d.name)
		}
		for _, m := range marker.FindAllStringSubmatch(d.text, -1) {
			n++
			if err := testExists(m[1], m[2]); err != nil {
				t.Errorf("%s: %v", d.name, err)
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d claims name a test", n)
	}
}

func testExists(folder, name string) error {
	tests, err := filepath.Glob(filepath.Join(top, folder, "*_test.go"))
	if err != nil {
		return err
	}
	for _, f := range tests {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if strings.Contains(string(b), "\nfunc "+name+"(") {
			return nil
		}
	}
	return fmt.Errorf("there is no test %s in %s", name, folder)
}

// TestThreatModelIsBacked: whatever the threat model says holds must name a test.
func TestThreatModelIsBacked(t *testing.T) {
	_, holds, ok := strings.Cut(document(t, "docs/threat-model.md"), "\n## What holds\n")
	if !ok {
		t.Fatal("docs/threat-model.md has no section \"What holds\"")
	}
	holds, _, _ = strings.Cut(holds, "\n## ")
	items := strings.Split("\n"+holds, "\n- ")[1:]
	if len(items) < 5 {
		t.Errorf("it makes only %d claims", len(items))
	}
	for _, item := range items {
		if !marker.MatchString(item) {
			t.Errorf("this claim names no test: %s", strings.TrimSpace(item))
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)\s#]+)(#[^)\s]*)?\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	for _, d := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(d.text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(top, filepath.Dir(d.name), m[1])); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s links to %s, which does not exist", d.name, m[1])
			}
		}
	}
}

// help gives what `bailey help COMMAND` prints, or the list of commands.
func help(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(built(t), append([]string{"help"}, command...)...).Output()
	if err != nil {
		t.Fatalf("bailey help %v: %v", command, err)
	}
	return string(out)
}

var (
	helpCommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*)\b`)
	helpFlag    = regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z][a-z-]*)`)
	docFlag     = regexp.MustCompile("`(?:-\\w`, `)?(--[a-z][a-z-]*)")
	docHeading  = regexp.MustCompile("(?m)^## `bailey ([a-z-]+)")
)

func names(re *regexp.Regexp, text string) []string {
	var out []string
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestCommandLineIsDocumented holds docs/cli.md against the program: the same
// commands, and for each the same flags.
func TestCommandLineIsDocumented(t *testing.T) {
	doc := document(t, "docs/cli.md")
	commands := names(helpCommand, help(t))
	if documented := names(docHeading, doc); !slices.Equal(commands, documented) {
		t.Errorf("the program has the commands %v, docs/cli.md has %v", commands, documented)
	}
	for _, c := range commands {
		_, section, _ := strings.Cut(doc, "\n## `bailey "+c)
		section, _, _ = strings.Cut(section, "\n## ")
		inHelp, inDoc := names(helpFlag, help(t, c)), names(docFlag, section)
		for _, f := range inHelp {
			if !slices.Contains(inDoc, f) {
				t.Errorf("docs/cli.md does not describe bailey %s %s", c, f)
			}
		}
		for _, f := range inDoc {
			if !slices.Contains(inHelp, f) {
				t.Errorf("docs/cli.md describes bailey %s %s, which does not exist", c, f)
			}
		}
	}
}

func TestCodesAreDocumented(t *testing.T) {
	doc := document(t, "docs/cli.md")
	for _, c := range codes(t) {
		if !strings.Contains(doc, "`"+c+"`") {
			t.Errorf("docs/cli.md does not describe the code %s", c)
		}
	}
}

var fence = regexp.MustCompile("(?s)```(?:sh|console|yaml)\n(.*?)```")

// TestCommandsInDocumentsExist looks at what the documents tell a person to type.
func TestCommandsInDocumentsExist(t *testing.T) {
	commands := names(helpCommand, help(t))
	flags := map[string][]string{}
	n := 0
	for _, d := range documents(t) {
		for _, block := range fence.FindAllStringSubmatch(d.text, -1) {
			for line := range strings.Lines(block[1]) {
				words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
				switch {
				case len(words) == 0:
				case strings.HasPrefix(words[0], "./"):
					n++
					if fi, err := os.Stat(filepath.Join(top, words[0])); err != nil || fi.Mode()&0o111 == 0 {
						if !strings.HasPrefix(words[0], "./bin/") {
							t.Errorf("%s: %s is no program of this repository", d.name, words[0])
						}
					}
				case words[0] == "bailey" && len(words) > 1:
					n++
					c := words[1]
					if c == "help" {
						continue
					}
					if !slices.Contains(commands, c) {
						t.Errorf("%s: there is no command: %s", d.name, strings.TrimSpace(line))
						continue
					}
					if flags[c] == nil {
						flags[c] = names(helpFlag, help(t, c))
					}
					for _, w := range words[2:] {
						if w == "--" || w == "#" {
							break
						}
						f, _, _ := strings.Cut(w, "=")
						if strings.HasPrefix(f, "--") && !slices.Contains(flags[c], f) {
							t.Errorf("%s: bailey %s has no flag %s", d.name, c, f)
						}
					}
				}
			}
		}
	}
	if n < 5 {
		t.Errorf("only %d commands were found in the documents", n)
	}
}

// TestRoomsAreDescribed: each room of the import table has a line in
// docs/architecture.md.
func TestRoomsAreDescribed(t *testing.T) {
	doc := document(t, "docs/architecture.md")
	for room := range rooms {
		if name := strings.TrimSuffix(room, "/..."); name != "." && !strings.Contains(doc, "`"+name) {
			t.Errorf("docs/architecture.md does not describe %s", name)
		}
	}
}

func TestReadme(t *testing.T) {
	doc := document(t, "README.md")
	for _, must := range []string{"./scripts/demo", "./scripts/test", "docs/threat-model.md", "docs/levels.md", "docs/architecture.md", "docs/cli.md", "SECURITY.md", "LICENSE"} {
		if !strings.Contains(doc, must) {
			t.Errorf("README.md does not mention %s", must)
		}
	}
	ci := document(t, ".ci/run")
	if !strings.Contains(ci, "scripts/test") {
		t.Error(".ci/run does not run what the README says")
	}
}
