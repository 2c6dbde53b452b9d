package levels

import (
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/gvisor"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/driver/microvm"
)

// Of gives the drivers of a host. l builds the levels on the host's own kernel;
// programs is the folder in which what the others need lies, "" beside the running
// program.
func Of(l *linux.Driver, programs string) driver.Levels {
	in := func(name string) string {
		if programs == "" {
			return ""
		}
		return filepath.Join(programs, name)
	}
	return driver.Levels{
		bailey.IsolationProcess: l, bailey.IsolationContainer: l,
		bailey.IsolationGVisor:  gvisor.New(gvisor.Options{Outer: l, State: l.State(), Runsc: in("runsc"), Cell: in("bailey-cell")}),
		bailey.IsolationMicroVM: microvm.New(microvm.Options{Outer: l, State: l.State(), Programs: programs}),
	}
}
