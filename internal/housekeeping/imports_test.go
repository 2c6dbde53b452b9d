package housekeeping

import (
	"slices"
	"strings"
	"testing"
)

// rooms says what each room may import of the project. A name with /... stands
// for everything below too. The longest name that fits a package is its room.
// docs/architecture.md has the same in words.
var rooms = map[string][]string{
	// Words and facts: they import next to nothing.
	".":                    {},
	"internal/faults":      {},
	"internal/guest/vfork": {},
	"internal/hostview":    {"."},
	"internal/mountinfo":   {},
	"internal/terminal":    {"."},
	"internal/store/...":   {".", "internal/store/..."},
	"internal/guest":       {".", "internal/guest/vfork"},

	// The workspace and what was done to it.
	"internal/workspace": {".", "internal/mountinfo", "internal/store/folder", "internal/store/records"},
	"internal/changes":   {".", "internal/store/folder", "internal/store/records", "internal/terminal", "internal/workspace", "internal/faults"},
	"internal/project":   {".", "internal/hostview"},

	// The boundary. A driver imports no other driver, and nobody above it.
	"internal/driver":              {"."},
	"internal/driver/linux/...":    {".", "internal/driver", "internal/guest", "internal/faults", "internal/mountinfo", "internal/driver/linux/..."},
	"internal/driver/seatbelt/...": {".", "internal/driver", "internal/driver/seatbelt/..."},

	// Images are taken apart in a program of their own; only their description
	// is known elsewhere.
	"internal/image/...":    {".", "internal/image/...", "internal/mountinfo"},
	"internal/image/rootfs": {},

	// What uses all that.
	"internal/run": {
		".", "internal/changes", "internal/driver", "internal/driver/linux", "internal/driver/seatbelt", "internal/faults", "internal/guest", "internal/hostview",
		"internal/image/rootfs", "internal/store/...", "internal/terminal", "internal/workspace",
	},
	"internal/doctor": {".", "internal/mountinfo", "internal/driver", "internal/driver/linux/...", "internal/driver/seatbelt", "internal/hostview"},
	"embedded": {
		".", "internal/driver", "internal/driver/linux", "internal/driver/seatbelt", "internal/guest", "internal/hostview", "internal/image/rootfs",
		"internal/run", "internal/store/...", "internal/workspace", "internal/changes",
	},
	"internal/bench/...": {
		".", "embedded", "internal/driver", "internal/driver/linux/...", "internal/guest", "internal/hostview", "internal/image/rootfs",
		"internal/run", "internal/store/...", "internal/terminal", "internal/workspace", "internal/bench/...",
	},
	"internal/cli": {
		".", "embedded", "internal/bench/...", "internal/changes", "internal/doctor", "internal/driver", "internal/driver/linux", "internal/driver/seatbelt",
		"internal/faults", "internal/hostview", "internal/image/rootfs", "internal/project", "internal/run", "internal/store/...",
		"internal/terminal", "internal/workspace",
	},

	// Programs.
	"cmd/bailey":            {"internal/cli"},
	"cmd/bailey-init":       {"internal/guest", "cmd/bailey-init/early"},
	"cmd/bailey-init/early": {},
	"cmd/baileyd":           {".", "internal/image/..."},

	// For tests only: nothing above may import them, which follows from this table.
	"internal/testneeds":       {},
	"internal/housekeeping":    {},
	"internal/conformance/...": {".", "embedded", "internal/..."},
	"scripts/testrun":          {"internal/testneeds"},
}

// fits tells whether a pattern of the table stands for a room.
func fits(pattern, room string) bool {
	base, below := strings.CutSuffix(pattern, "/...")
	return room == base || below && strings.HasPrefix(room, base+"/")
}

// roomOf finds the entry for a package.
func roomOf(room string) (pattern string) {
	for p := range rooms {
		if fits(p, room) && len(p) > len(pattern) {
			pattern = p
		}
	}
	return pattern
}

func TestImportsPointOneWay(t *testing.T) {
	seen := map[string]bool{}
	for _, goos := range []string{"linux", "darwin"} {
		for _, p := range list(t, goos, "./...") {
			pattern := roomOf(p.room())
			if pattern == "" {
				t.Errorf("%s is no room: give it a place in this table and in docs/architecture.md", p.room())
				continue
			}
			seen[pattern] = true
			for _, imported := range p.Imports {
				if imported != module && !strings.HasPrefix(imported, module+"/") {
					continue
				}
				to := pkg{ImportPath: imported}.room()
				if !slices.ContainsFunc(rooms[pattern], func(may string) bool { return fits(may, to) }) {
					t.Errorf("%s imports %s, which it may not (%s)", p.room(), to, goos)
				}
			}
		}
	}
	for pattern, may := range rooms {
		if strings.HasPrefix(pattern, "internal/driver/") {
			for _, m := range may {
				if strings.HasPrefix(m, "internal/driver/") && m != pattern || m == "internal/cli" || m == "internal/run" || strings.HasPrefix(m, "internal/gate") {
					t.Errorf("the table lets the driver %s import %s", pattern, m)
				}
			}
		}
	}
	for _, must := range []string{".", "internal/driver", "internal/run", "internal/cli", "cmd/bailey"} {
		if !seen[must] {
			t.Errorf("the room %s was not looked at", must)
		}
	}
}

// TestRoomsHaveNoCircles checks the table itself: following what a room may
// import never leads back to it.
func TestRoomsHaveNoCircles(t *testing.T) {
	var visit func(from string, path []string)
	done := map[string]bool{}
	visit = func(from string, path []string) {
		if slices.Contains(path, from) {
			t.Errorf("a circle: %s", strings.Join(append(path, from), " → "))
			return
		}
		if done[from] {
			return
		}
		for _, may := range rooms[from] {
			for to := range rooms {
				if to != from && (may == to || fits(may, strings.TrimSuffix(to, "/..."))) {
					visit(to, append(slices.Clone(path), from))
				}
			}
		}
		done[from] = true
	}
	for room := range rooms {
		if room != "internal/conformance/..." { // may import everything, and nothing imports it
			visit(room, nil)
		}
	}
}
