//go:build linux

package escape

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
)

// Wall is what stops an attempt: a linux.Protection, or one of the walls that
// other rooms build, below.
type Wall = linux.Protection

// Walls that are not the driver's. Their control runs go without what the room
// does.
const (
	ViewEnv        Wall = "hostview.env"    // the environment is an allow list
	ViewHome       Wall = "hostview.home"   // the home folder is the sandbox's own
	TerminalFilter Wall = "terminal.filter" // escape sequences are made harmless
)

var notDriver = []Wall{ViewEnv, ViewHome, TerminalFilter}

// Mode is how a sandbox is made.
type Mode struct {
	Level bailey.Isolation
	Root  bool // started by root; otherwise by an ordinary user
}

func (m Mode) String() string {
	if m.Root {
		return m.Level.String() + "/root"
	}
	return m.Level.String() + "/rootless"
}

// Modes are all ways of making a sandbox that the suite tries.
func Modes() []Mode {
	return []Mode{
		{bailey.IsolationProcess, true}, {bailey.IsolationContainer, true},
		{bailey.IsolationProcess, false}, {bailey.IsolationContainer, false},
	}
}

// OwnKernel are the ways of making a sandbox with a kernel of its own. Every attempt
// that a container stops is made there too, with everything in force: what it is worth
// shows in the control runs of the container, whose kernel is the host's.
func OwnKernel(root bool) []Mode { return []Mode{{bailey.IsolationGVisor, root}} }

// Attempt is one way to get out.
type Attempt struct {
	Name  string
	Tries string // what it does, for people
	Seen  string // where success would show

	// Walls stop the attempt in every mode; AtProcess, AtContainer and AsRoot add
	// to them where they stand too. Each wall stops it alone; all of them go for
	// the control run.
	Walls, AtProcess, AtContainer, AsRoot, AsUser []Wall
	// Fallen cannot stand without one of the walls and go with it, though they
	// would not stop the attempt.
	Fallen map[Wall][]Wall
	// Of several modes an attempt may make sense in some only; Why says why.
	RootOnly bool
	Only     bailey.Isolation // IsolationAuto: both levels
	Why      string
	// Needs is a file of the host without which there is nothing to attack.
	Needs string

	userOnly bool // not as root
	// alone: no other attempt may run at the same time.
	alone bool
	// refused: with the walls up the sandbox is not even made.
	refused bool
	// arrange prepares the host and says what the attacker executes.
	arrange func(f *field) error
	// landed looks for success. It is called with each message of the attacker
	// while that waits, and with nil when the sandbox is gone.
	landed func(f *field, m *message) bool
}

// In says whether the attempt is made in a mode.
func (a *Attempt) In(m Mode) bool {
	return (m.Root && !a.userOnly || !m.Root && !a.RootOnly) && (a.Only == bailey.IsolationAuto || a.Only == m.Level || a.Only == bailey.IsolationContainer && m.Level.OwnRoot())
}

// WallsIn gives what stops the attempt in a mode.
func (a *Attempt) WallsIn(m Mode) []Wall {
	walls := slices.Clone(a.Walls)
	if m.Level == bailey.IsolationProcess {
		walls = append(walls, a.AtProcess...)
	} else {
		walls = append(walls, a.AtContainer...)
	}
	if m.Root {
		walls = append(walls, a.AsRoot...)
	} else {
		walls = append(walls, a.AsUser...)
	}
	return walls
}

// Without gives what a run has to leave out so that walls are gone.
func (a *Attempt) Without(walls []Wall) []Wall {
	all := slices.Clone(walls)
	for _, w := range walls {
		for _, f := range a.Fallen[w] {
			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	return all
}

// WriteTable prints the attempts made in a mode.
func WriteTable(w io.Writer, m Mode) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ATTEMPT\tSTOPPED BY\tTRIES\tSUCCESS WOULD SHOW")
	for _, a := range Attempts() {
		if a.In(m) {
			var names []string
			for _, wall := range a.WallsIn(m) {
				names = append(names, string(wall))
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", a.Name, strings.Join(names, " + "), a.Tries, a.Seen)
		}
	}
	return t.Flush()
}

// Attempts gives the whole table.
func Attempts() []Attempt {
	return slices.Concat(fileAttempts(), kernelFileAttempts(), deviceAttempts(), mountAttempts(), namespaceAttempts(), processAttempts(),
		ownAttempts(), identityAttempts(), networkAttempts(), outletAttempts(), callAttempts(), queueAttempts(), terminalAttempts(), limitAttempts(), linkAttempts())
}
