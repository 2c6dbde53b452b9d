//go:build linux

package levels

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
)

var update = flag.Bool("update", false, "write the table anew")

const (
	tableDoc   = "../../docs/levels.md"
	tableBegin = "<!-- generated: go test ./internal/levels -update -->\n"
	tableEnd   = "<!-- end -->\n"
)

// needs are the rows, in a person's words.
var needs = []struct {
	need driver.Need
	text string
}{
	{driver.NeedWorkspace, "a folder of the host, copy-on-write (`--workspace`)"},
	{driver.NeedMounts, "folders of the host as they are (`--mount`)"},
	{driver.NeedVolumes, "volumes (`--volume`)"},
	{driver.NeedNetwork, "a way out, to the gate (`--allow`, `--policy`)"},
	{driver.NeedAttach, "mounts that are added while it runs (`bailey mount add`)"},
	{driver.NeedNested, "sandboxes that programs inside make (`--nested-sandboxes`)"},
}

// TestTable: docs/levels.md tells what drivers say of themselves. What a level lacks does not
// depend on the host: what the host lacks is `bailey doctor`'s to tell.
func TestTable(t *testing.T) {
	all := Of(linux.New(linux.Options{State: t.TempDir()}), t.TempDir())
	columns := []bailey.Isolation{bailey.IsolationProcess, bailey.IsolationContainer, bailey.IsolationGVisor, bailey.IsolationMicroVM}
	if len(all) != len(columns) {
		t.Errorf("there are %d levels", len(all))
	}
	var b strings.Builder
	b.WriteString("|  |")
	lacks := map[bailey.Isolation][]driver.Need{}
	memory := "| processes that go on from disk (`bailey pause --to-disk`) |"
	for _, level := range columns {
		b.WriteString(" " + level.String() + " |")
		c := all.Probe(t.Context(), level)
		lacks[level] = c.Lacks
		memory += map[bool]string{true: " yes |", false: " no |"}[c.Memory]
		for _, n := range lacks[level] {
			if !slices.ContainsFunc(needs, func(row struct {
				need driver.Need
				text string
			}) bool {
				return row.need == n
			}) {
				t.Errorf("the table has no row for %s, which %s lacks", n, level)
			}
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, row := range needs {
		b.WriteString("| " + row.text + " |")
		for _, level := range columns {
			if slices.Contains(lacks[level], row.need) {
				b.WriteString(" no |")
			} else {
				b.WriteString(" yes |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString(memory + "\n")
	text, err := os.ReadFile(tableDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	have, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", tableDoc)
	}
	if have == b.String() {
		return
	}
	if !*update {
		t.Errorf("%s has another table; go test ./internal/levels -update writes it:\n%s", tableDoc, b.String())
		return
	}
	if err := os.WriteFile(tableDoc, []byte(before+tableBegin+b.String()+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
