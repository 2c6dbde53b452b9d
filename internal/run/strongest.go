package run

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// Offer is a level and what this host can do at it.
type Offer struct {
	Level bailey.Isolation
	Can   driver.Capabilities
}

// Need is what a sandbox that stays is to have and not every level can give.
type Need struct {
	Min    bailey.Isolation
	Things []driver.Need
	Limits []string // by the names of driver.Capabilities.Limits
}

// Strongest gives the strongest of the levels offered that is not emulated and can
// do all that is needed, and in words why it is not a stronger one. It is a pure
// function.
func Strongest(offers []Offer, need Need) (bailey.Isolation, string, error) {
	offers = slices.Clone(offers)
	slices.SortFunc(offers, func(a, b Offer) int { return int(b.Level - a.Level) })
	var passed []string
	for _, o := range offers {
		if o.Level < need.Min {
			break
		}
		if why := need.missing(o); why != "" {
			passed = append(passed, why)
			continue
		}
		reason := "the strongest level of this host that can do all of it"
		if len(passed) > 0 {
			reason += " (" + strings.Join(passed, "; ") + ")"
		}
		return o.Level, reason, nil
	}
	why := strings.Join(passed, "; ")
	if why == "" {
		why = "there is none"
	}
	return 0, "", bailey.Errorf(bailey.CodeIsolationUnavailable, "choose an isolation level", "name a level yourself, or ask for less; `bailey doctor` lists what this host can do",
		"no level from %s on can do it: %s", max(need.Min, bailey.IsolationProcess), why)
}

// missing says why a level is not chosen; "" is that it can be.
func (n Need) missing(o Offer) string {
	if !o.Can.Available {
		return fmt.Sprintf("%s: %s", o.Level, o.Can.Why)
	}
	if o.Can.Emulated {
		return fmt.Sprintf("%s is emulated here, and only used when it is named", o.Level)
	}
	for _, t := range n.Things {
		if slices.Contains(o.Can.Lacks, t) {
			return fmt.Sprintf("%s has no %s", o.Level, t)
		}
	}
	for _, l := range n.Limits {
		if !slices.Contains(o.Can.Limits, l) {
			return fmt.Sprintf("%s cannot limit %s", o.Level, l)
		}
	}
	return ""
}
