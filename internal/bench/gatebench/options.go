package gatebench

import (
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Options say what to measure.
type Options struct {
	Rounds    int           // turns of each subject, for requests
	Slot      time.Duration // how long one turn may take, for each of rate and latency
	Workers   int           // requests at once, for the rate
	Downloads int           // turns of each subject, for downloads
	Size      int64         // bytes of one download
	Rules     int           // of the policy that decides
	Sandboxes int           // of which one gate process holds the ways out
	Only      []string      // measures by name; none: all
	Version   string        // of Bailey
	// Dir is a folder for files, which the caller removes.
	Dir      string
	Tell     bool // on standard error, what goes on
	progress func(measure string, done, of int)
}

// Defaults are what `bailey bench gate` does without flags.
func Defaults() Options {
	return Options{Rounds: 20, Slot: 200 * time.Millisecond, Workers: 16, Downloads: 5, Size: 1e9, Rules: 2000, Sandboxes: 200}
}

func (o Options) check() error {
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			return bailey.Errorf(bailey.CodeUsage, "measure "+name, "choose from "+strings.Join(Names(), ", "), "there is no such measure")
		}
	}
	if o.Rounds < 1 || o.Slot < time.Millisecond || o.Workers < 1 || o.Downloads < 1 || o.Size < 1 || o.Rules < 1 || o.Sandboxes < 1 {
		return bailey.Errorf(bailey.CodeUsage, "measure", "give numbers above zero, and a slot of at least 1ms", "there would be nothing to count")
	}
	return nil
}
