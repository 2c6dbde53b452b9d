package lifebench

import (
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Options say what to measure.
type Options struct {
	// Kernels measures the levels with a kernel of their own, and not what happens to
	// sandboxes at the others.
	Kernels bool
	Rounds  int           // sandboxes of each subject: one after the other, staggered, at once
	Stagger time.Duration // between two beginnings
	Turns   int           // of each subject, where no sandbox is made for one: forks, snapshots, resumes
	Execs   int           // commands in one sandbox, one after the other and 50 at once
	Files   int           // in the largest tree that is forked and captured
	Idle    int           // sandboxes at once, at most: 10, 100 … of them are measured
	Watch   time.Duration // how long processor time is watched
	Limit   time.Duration // what all measures may take together; turns are left out to keep it
	Only    []string      // measures by name; none: all
	Version string        // of Bailey
	// Programs is the folder with bailey-keeper, bailey-init and baileyd; "" is that
	// of this program.
	Programs string
	// Parent is the folder in which a temporary one is made.
	Parent string
	// Profile is a file for the daemon's processor profile; "" is none.
	Profile string
	// Progress, when given, is told what goes on.
	Progress func(measure string, done, of int)
}

// Defaults are what `bailey bench lifecycle` does without flags; they end within three minutes.
func Defaults() Options {
	return Options{
		Rounds: 100, Stagger: 50 * time.Millisecond, Turns: 20, Execs: 1000, Files: 100_000, Idle: 100, Watch: 2 * time.Second,
		Limit: 135 * time.Second,
	}
}

// KernelDefaults are what `bailey bench kernels` does without flags. Machines that are emulated
// boot for seconds: it ends within eight minutes.
func KernelDefaults() Options {
	o := Defaults()
	o.Kernels, o.Turns, o.Execs, o.Watch, o.Limit = true, 10, 200, 5*time.Second, 6*time.Minute
	return o
}

// Quick are Options that end within half a minute.
func Quick() Options {
	o := Defaults()
	o.Rounds, o.Turns, o.Execs, o.Files, o.Idle, o.Watch, o.Limit = 10, 5, 200, 1000, 10, time.Second, 20*time.Second
	return o
}

// hard is when what is under way is given up.
func (o Options) hard() time.Duration { return o.Limit + o.Limit/3 }

func (o Options) check() error {
	for _, name := range o.Only {
		if names := Names(o.Kernels); !slices.Contains(names, name) {
			return bailey.Errorf(bailey.CodeUsage, "measure "+name, "choose from "+strings.Join(names, ", "), "there is no such measure")
		}
	}
	if min(o.Rounds, o.Turns, o.Execs, o.Files, o.Idle) < 1 || min(o.Stagger, o.Watch, o.Limit) <= 0 {
		return bailey.Errorf(bailey.CodeUsage, "measure", "give numbers and times above zero", "there would be nothing to count")
	}
	if max(o.Rounds, o.Idle) > 10_000 {
		return bailey.Errorf(bailey.CodeUsage, "measure", "ask for at most 10000", "so many sandboxes at once are no measurement of this machine")
	}
	return nil
}
