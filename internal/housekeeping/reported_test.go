package housekeeping

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// required are the numbers of situations that have to have a test, from and to.
var required = [][2]int{{1, 37}, {72, 87}}

var (
	situation = regexp.MustCompile(`(?m)^\| (T\d\d) \| ([^|]+) \| ([^|]+) \|$`)
	testName  = regexp.MustCompile("^`([a-z/]+)\\.((?:Test|Fuzz)\\w+)`$")
)

// TestReportedSituationsAreTested: each row of the table in docs/testing.md names
// tests that exist, and no number that has to be there is missing.
func TestReportedSituationsAreTested(t *testing.T) {
	rows := map[string]bool{}
	for _, m := range situation.FindAllStringSubmatch(document(t, "docs/testing.md"), -1) {
		if rows[m[1]] {
			t.Errorf("%s has two rows", m[1])
		}
		rows[m[1]] = true
		for name := range strings.SplitSeq(m[3], ", ") {
			test := testName.FindStringSubmatch(name)
			if test == nil {
				t.Errorf("%s: %s is not the name of a test", m[1], name)
			} else if err := testExists(test[1], test[2]); err != nil {
				t.Errorf("%s: %v", m[1], err)
			}
		}
	}
	for _, r := range required {
		for n := r[0]; n <= r[1]; n++ {
			if name := fmt.Sprintf("T%02d", n); !rows[name] {
				t.Errorf("%s has no row", name)
			}
		}
	}
}
