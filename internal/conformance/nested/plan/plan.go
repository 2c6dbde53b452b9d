// Package plan is what the two ends of a nested run say to each other: the plan
// that lies on the machine's second disk, and the events that come back, one JSON
// value a line.
package plan

// Places inside the machine.
const (
	Disk     = "/nested"            // where the second disk is mounted
	File     = Disk + "/plan.json"  // the plan
	Source   = Disk + "/src"        // the repository's files
	Programs = Disk + "/programs"   // what `go build` gives inside, by tags and folder
	Plain    = Programs + "/plain/" // built without tags
	Port     = "nested"             // the name of the port that events go to
)

// The ordinary user of the machine, who has subordinate ids and a home folder.
const (
	UserName = "nested"
	UserID   = 12345
	UserHome = "/home/nested"
)

// Plan is what a machine does before it ends.
type Plan struct {
	Steps []Step
}

// Step is one program with its arguments.
type Step struct {
	Name    string   // for the one who reads
	Command []string // the program by its path, and its arguments
	Dir     string
	Env     []string // beside what every step has
	User    bool     // as the ordinary user, in a group delegated to it
	Seconds int      // after which it is killed
}

// Event is one thing that happened.
type Event struct {
	Kernel string `json:",omitempty"` // at the start: the kernel's release
	Step   int    // by index
	Output []byte `json:",omitempty"` // of the step
	Ended  bool   `json:",omitempty"`
	Code   int    `json:",omitempty"` // its exit code, 128 and the signal's number for one that was killed
	Fatal  string `json:",omitempty"` // the machine itself could not go on
	Done   bool   `json:",omitempty"` // nothing comes any more
}
