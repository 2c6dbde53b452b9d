package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// stayingCommand becomes the client of the daemon: HTTP would make every start of
// this program slower.
func stayingCommand(inv *invocation) (int, error) {
	return 0, become("bailey-client", append([]string{"bailey", inv.Name}, inv.Args...))
}

// serveCommand becomes the keeper, which starts the daemon and holds what must
// survive it. What only asks something of baileyd goes to that.
func serveCommand(inv *invocation) (int, error) {
	if slices.ContainsFunc(inv.Args, func(a string) bool { return a == "--help" || a == "-h" || a == "--install" }) {
		return 0, become("baileyd", append([]string{"bailey", "serve"}, inv.Args...))
	}
	home, err := folder.DefaultPath()
	if err != nil {
		return 0, err
	}
	for i, a := range inv.Args {
		if v, ok := strings.CutPrefix(a, "--home="); ok {
			home = v
		} else if a == "--home" && i+1 < len(inv.Args) {
			home = inv.Args[i+1]
		}
	}
	if home, err = filepath.Abs(home); err != nil {
		return 0, bailey.Errorf(bailey.CodeUsage, "find the data folder", "name it from the root with --home", "%w", err)
	}
	daemon, err := program("baileyd")
	if err != nil {
		return 0, err
	}
	return 0, become("bailey-keeper", append([]string{"bailey-keeper", "--home", home, "--", daemon, "serve"}, inv.Args...))
}

// become makes this process another program of Bailey. It comes back only when that
// could not be.
func become(name string, argv []string) error {
	path, err := program(name)
	if err != nil {
		return err
	}
	err = syscall.Exec(path, argv, os.Environ())
	return bailey.Errorf(bailey.CodeNotAvailable, "start "+path, "build all of Bailey with ./scripts/build", "%w", err)
}
