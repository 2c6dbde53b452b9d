package main

import (
	"fmt"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// need is a skip's reason, taken apart.
type need struct {
	kind string // root, ordinary, tool, host, part
	name string // of the tool, feature or test
}

// parseNeed reads a reason as package testneeds writes it.
func parseNeed(reason string) (need, error) {
	word := func(prefix string) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(reason, prefix), ":")
		return strings.TrimSpace(name)
	}
	switch {
	case reason == "":
		return need{}, fmt.Errorf("it gives no reason")
	case reason == testneeds.PrefixRoot || strings.HasPrefix(reason, testneeds.PrefixRoot+":"):
		return need{kind: "root"}, nil
	case reason == testneeds.PrefixOrdinary || strings.HasPrefix(reason, testneeds.PrefixOrdinary+":"):
		return need{kind: "ordinary"}, nil
	case strings.HasPrefix(reason, testneeds.PrefixTool):
		name := word(testneeds.PrefixTool)
		if name == "" || strings.ContainsAny(name, " /") {
			return need{}, fmt.Errorf("%q names no tool", reason)
		}
		return need{"tool", name}, nil
	case strings.HasPrefix(reason, testneeds.PrefixHost):
		name := word(testneeds.PrefixHost)
		if !testneeds.Feature(name).Known() {
			return need{}, fmt.Errorf("no probe is known for the host feature %q", name)
		}
		return need{"host", name}, nil
	case strings.HasPrefix(reason, testneeds.PrefixPart):
		return need{"part", word(testneeds.PrefixPart)}, nil
	}
	return need{}, fmt.Errorf("%q is not of a kind that can be checked; see package testneeds", reason)
}

// judge tells whether a skip is right for a pass that runs as root or not. met
// asks, as that pass's user, whether a tool or feature is there, and whether a
// test of the same package has passed or could not run itself.
func judge(reason string, root bool, met func(need) bool) error {
	n, err := parseNeed(reason)
	switch {
	case err != nil:
		return err
	case n.kind == "root" && root:
		return fmt.Errorf("it says %q, and it ran as root", reason)
	case n.kind == "ordinary" && !root:
		return fmt.Errorf("it says %q, and it ran as an ordinary user", reason)
	case n.kind == "tool" && met(n):
		return fmt.Errorf("it says %q, and the tool is there", reason)
	case n.kind == "part" && !met(n):
		return fmt.Errorf("it says %q, and that has not passed", reason)
	case n.kind == "host" && met(n):
		return fmt.Errorf("it says %q, and the probe finds it", reason)
	}
	return nil
}
