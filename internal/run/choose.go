package run

import (
	"github.com/bailey-sandbox/bailey"
)

// Ask is what isolation is chosen from.
type Ask struct {
	Level, Min bailey.Isolation // IsolationAuto: not asked
	Root       bool             // an image or template was named
}

// Choose gives the isolation level of a run and the reason, in words. It is a
// pure function: whether the level works on this host shows when the sandbox
// is made, and a level that does not is an error, never a weaker sandbox.
func Choose(a Ask) (bailey.Isolation, string, error) {
	const what = "choose an isolation level"
	level, reason := a.Level, "asked for"
	if level == bailey.IsolationAuto {
		switch {
		case a.Root:
			level, reason = bailey.IsolationContainer, "it has a root file system of its own"
		case a.Min > bailey.IsolationProcess:
			level, reason = a.Min, "the weakest that --min-isolation admits"
		default:
			level, reason = bailey.IsolationProcess, "a command over the host's own tools"
		}
	}
	switch {
	case level < a.Min:
		return 0, "", bailey.Errorf(bailey.CodeUsage, what, "change one of the two",
			"--isolation %s is weaker than --min-isolation %s", level, a.Min)
	case level == bailey.IsolationInterpreter || level > bailey.IsolationMicroVM:
		return 0, "", bailey.Errorf(bailey.CodeIsolationUnavailable, what, "use process, container, gvisor or microvm; `bailey doctor` lists what this host can do",
			"the level %s is not in this version", level)
	case level == bailey.IsolationProcess && a.Root:
		return 0, "", bailey.Errorf(bailey.CodeUsage, what, "use --isolation container, or leave the image out",
			"the level process shows the host's own tools and has no root file system of its own")
	}
	return level, reason, nil
}
