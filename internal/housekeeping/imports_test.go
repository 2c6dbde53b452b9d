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
	"api":                  {"."},
	"client":               {".", "api"},
	"internal/faults":      {},
	"internal/guest/vfork": {},
	"internal/hostview":    {"."},
	"internal/mountinfo":   {},
	"internal/terminal":    {"."},
	"internal/store/...":   {".", "internal/store/..."},
	"internal/store/state": {".", "api"},
	"internal/guest":       {".", "internal/guest/vfork"},

	// The first process of a cell, and what asks it.
	"internal/cell": {".", "internal/guest"},

	// The workspace and what was done to it.
	"internal/workspace": {".", "internal/mountinfo", "internal/store/folder", "internal/store/records"},
	"internal/changes":   {".", "internal/store/folder", "internal/store/records", "internal/terminal", "internal/workspace", "internal/faults"},
	"internal/project":   {".", "internal/hostview"},

	"internal/approval": {"."},

	// The boundary. A driver imports no other driver, and nobody above it.
	"internal/driver":              {"."},
	"internal/driver/gvisor":       {".", "internal/cell", "internal/driver"},
	"internal/driver/microvm":      {".", "internal/driver", "internal/cell", "internal/microvm/kit"},
	"internal/driver/linux/...":    {".", "internal/driver", "internal/guest", "internal/faults", "internal/mountinfo", "internal/driver/linux/..."},
	"internal/driver/seatbelt/...": {".", "internal/driver", "internal/driver/seatbelt/..."},
	"internal/levels":              {".", "internal/driver", "internal/driver/..."},

	// Virtual machines: what runs one, and serves it its files.
	"internal/microvm/...":     {"."},
	"internal/microvm/pack":    {"internal/microvm/kit"},
	"internal/microvm/machine": {".", "internal/microvm/monitor", "internal/microvm/share"},
	"internal/microvm/once":    {".", "internal/guest", "internal/microvm/machine"},

	// The gate. What protocols need of it is the seam act; control is all that
	// those who start it see.
	"policy":                  {},
	"internal/audit":          {"."},
	"internal/audit/seal":     {".", "internal/audit"},
	"internal/secrets":        {"."},
	"internal/secrets/vault":  {".", "internal/secrets"},
	"internal/gate/act":       {"internal/audit", "policy"},
	"internal/gate/control":   {"."},
	"internal/gate/starter":   {".", "internal/gate/control", "internal/gate/rootfiles"},
	"internal/gate/rootfiles": {"."},
	"internal/gate/...": {
		".", "policy", "internal/audit", "internal/secrets", "internal/gate/...", "internal/driver", "internal/faults",
		"internal/driver/linux/landlock", "internal/driver/linux/seccomp",
	},

	// Images are taken apart in a program of their own; only their description
	// is known elsewhere. What addresses are public is the gate's to know.
	"internal/image/...":    {".", "api", "internal/image/...", "internal/mountinfo", "internal/gate/dial"},
	"internal/image/rootfs": {},

	// What uses all that.
	"internal/run": {
		".", "internal/changes", "internal/driver", "internal/driver/linux", "internal/driver/seatbelt", "internal/faults", "internal/guest", "internal/hostview",
		"internal/image/rootfs", "internal/store/...", "internal/terminal", "internal/workspace", "internal/gate/control", "internal/gate/rootfiles", "internal/gate/starter", "internal/audit", "internal/approval",
	},
	// Sandboxes that stay.
	"internal/keeper": {".", "internal/faults"},
	// workspace: the same copying of contents, by clones or around holes.
	"internal/layers": {".", "api", "internal/faults", "internal/store/folder", "internal/store/records", "internal/workspace"},
	"internal/engine/...": {
		".", "api", "policy", "internal/approval", "internal/audit", "internal/changes", "internal/driver", "internal/driver/linux", "internal/engine/...", "internal/faults",
		"internal/gate/control", "internal/gate/rootfiles", "internal/gate/starter", "internal/guest", "internal/hostview", "internal/image/...", "internal/keeper", "internal/layers", "internal/levels", "internal/mountinfo", "internal/run",
		"internal/store/...", "internal/workspace",
	},
	"internal/server/...": {".", "api", "client", "policy", "internal/approval", "internal/audit", "internal/engine", "internal/faults", "internal/server/...", "internal/store/..."},
	"internal/server/mcp": {".", "api", "client"},
	"internal/agenttools": {".", "api", "client"},
	"internal/doctor":     {".", "internal/mountinfo", "internal/driver", "internal/driver/linux/...", "internal/driver/seatbelt", "internal/hostview"},
	"embedded": {
		".", "internal/driver", "internal/driver/linux", "internal/driver/seatbelt", "internal/guest", "internal/hostview", "internal/image/rootfs",
		"internal/levels", "internal/run", "internal/store/...", "internal/workspace", "internal/changes", "internal/gate/control", "internal/audit",
	},
	"internal/bench/...": {
		".", "embedded", "internal/driver", "internal/driver/linux/...", "internal/guest", "internal/hostview", "internal/image/rootfs",
		"internal/run", "internal/store/...", "internal/terminal", "internal/workspace", "internal/bench/...",
	},
	"internal/bench/result": {},
	"internal/bench/peer":   {".", "internal/driver/linux/cgroup", "internal/driver/linux/spawn", "internal/image/rootfs"},
	"internal/bench/gatebench": {
		".", "policy", "internal/bench/result", "internal/driver", "internal/driver/linux/netfilter", "internal/gate/control", "internal/secrets", "internal/secrets/vault", "internal/store/folder",
	},
	// The API's client is what it measures with.
	"internal/bench/lifebench": {".", "api", "client", "internal/microvm/kit", "internal/bench/peer", "internal/bench/result", "internal/store/folder"},
	"internal/cli/values":      {"."},
	"internal/cli/command":     {".", "internal/terminal"},
	"internal/cli/client":      {".", "api", "client", "internal/cli/command", "internal/cli/values", "internal/agenttools", "internal/server/mcp", "internal/terminal"},
	"internal/cli": {
		".", "embedded", "internal/cli/command", "internal/cli/values", "internal/bench/...", "internal/changes", "internal/doctor", "internal/driver", "internal/driver/linux", "internal/driver/seatbelt",
		"internal/faults", "internal/hostview", "internal/image/rootfs", "internal/levels", "internal/project", "internal/run", "internal/store/...",
		"internal/terminal", "internal/workspace", "internal/gate/control", "internal/audit", "internal/approval",
	},

	// Programs.
	"cmd/bailey":            {"internal/cli"},
	"cmd/bailey-init":       {"internal/guest", "cmd/bailey-init/early"},
	"cmd/bailey-init/early": {},
	"cmd/bailey-cell":       {"internal/cell"},
	"cmd/bailey-keeper":     {".", "internal/keeper"},
	"cmd/bailey-boot":       {},
	"cmd/bailey-vmm":        {"internal/microvm/machine", "internal/microvm/once"},
	"cmd/bailey-client":     {"internal/cli/client"},
	"cmd/baileyd":           {".", "internal/image/...", "policy", "internal/gate/...", "internal/secrets", "internal/secrets/vault", "internal/audit", "internal/audit/seal", "internal/store/...", "internal/faults", "internal/terminal", "internal/bench/gatebench", "internal/bench/lifebench", "api", "internal/engine", "internal/server/...", "internal/keeper", "internal/layers"},

	// For tests only: nothing above may import them, which follows from this table.
	"internal/testneeds":       {},
	"internal/housekeeping":    {},
	"internal/conformance/...": {".", "api", "client", "embedded", "internal/..."},
	"scripts/testrun":          {"internal/testneeds"},
	"scripts/vmkit":            {"internal/microvm/kit", "internal/microvm/pack"},
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
