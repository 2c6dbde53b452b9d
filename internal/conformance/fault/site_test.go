//go:build linux

package fault

import (
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// mischief is what the killed sandboxes run: it forks, detaches in each way
// there is, ignores signals, and changes the workspace.
const mischief = `trap "" HUP INT QUIT TERM
setsid sh -c 'trap "" HUP INT QUIT TERM; sleep 1000 & exec sleep 1000' </dev/null >/dev/null 2>&1 &
(setsid sh -c '(trap "" HUP INT QUIT TERM; exec sleep 1000) &' &)
sh -c 'trap "" TERM; sleep 1000' &
i=0
while [ $i -lt 20 ]; do i=$((i+1)); echo "content $i" > "new $i"; done
rm old1; echo changed > old2; mkdir -p dir; mv old3 dir/; chmod 700 old4; ln -s /etc/passwd link
rm -r tree; mkdir tree; echo other > tree/other
echo ready
`

// levels are the flags of the isolation levels.
var levels = map[string][]string{"process": nil, "container": {"--template", "host"}}

// ownKernel are those of levels with a kernel of their own, which few tests are made at: a
// sandbox takes a second there.
var ownKernel = map[string][]string{"gvisor": {"--isolation", "gvisor", "--template", "host"}}

// site is a yard where sandboxes get killed.
type site struct {
	*rig.Yard
	t     *testing.T
	host  string   // the person's files, which no killed run may change
	runs  []string // in the data folder, as far as they have been looked at
	mount []string
	ids   []string // of all runs that were killed
	took  []time.Duration
}

func newSite(t *testing.T, who rig.Person) *site {
	t.Helper()
	s := &site{Yard: rig.New(t, who), t: t}
	s.furnish()
	// What is made once, such as the template, is not part of what is compared.
	s.Must("run", "--discard", "--template", "host", "--", "true")
	s.Must("run", "--discard", "--", "true")
	s.host, s.runs, s.mount = s.Host(), s.Runs(), s.MountsNow()
	t.Cleanup(s.report)
	return s
}

// furnish fills the workspace.
func (s *site) furnish() {
	s.Write("mischief.sh", mischief, 0o644)
	s.Write("linger.sh", mischief+"exec sleep 1000\n", 0o644)
	for i := range 4 {
		s.Write("old"+strconv.Itoa(i+1), "as it was\n", 0o644)
	}
	s.Write("tree/leaf", "leaf\n", 0o644)
}

func (s *site) command(level string, extra []string, script string) []string {
	flags, ok := levels[level]
	if !ok {
		flags = ownKernel[level]
	}
	args := append([]string{"run", "--keep"}, flags...)
	return append(append(args, extra...), "--", "sh", script)
}

// aftermath looks at what a kill has left. namespaces are those that the sandbox
// was seen in.
func (s *site) aftermath(what string, namespaces []*os.File) {
	s.t.Helper()
	took, err := s.Gone(rig.Patience)
	if err != nil {
		s.t.Fatalf("%s: after %v: %v", what, took, err)
	}
	s.took = append(s.took, took)
	s.Unheld(namespaces)
	s.Mounts(s.mount)
	s.LoopDevices()
	rig.Same(s.t, what, s.host, s.Host())
	s.dataFolder(what)
}

// dataFolder checks that one run has come at most.
func (s *site) dataFolder(what string) {
	s.t.Helper()
	entries, err := os.ReadDir(s.Data)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{"runs", "ids", "cache", "namespaces", "audit"}, e.Name()) {
			s.t.Errorf("%s: %s is left in the data folder", what, e.Name())
		}
	}
	now, more := s.Runs(), 0
	for _, n := range now {
		// What was being removed goes on being removed at the next start, which
		// settle looks at.
		if !slices.Contains(s.runs, n) && !strings.HasPrefix(n, ".gone-") {
			more++
		}
	}
	if more > 1 {
		s.t.Errorf("%s: %d runs have come: %v", what, more, now)
	}
	s.runs = now
	s.ids = append(s.ids, s.RunIDs()...)
}

// settle is the next start of Bailey: what had to be swept is gone then, and
// each run that is left can be looked at and dealt with.
func (s *site) settle(what string, states ...string) {
	s.t.Helper()
	list := s.List()
	if groups := rig.Groups(s.ids); len(groups) > 0 {
		s.t.Errorf("%s: control groups are left: %v", what, groups)
	}
	if names := s.Runs(); len(names) != len(list) {
		s.t.Errorf("%s: the data folder has %v, listed is %v", what, names, list)
	}
	for i, run := range list {
		if !slices.Contains(states, run.State) {
			s.t.Errorf("%s: the run is %s, want %v", what, run.State, states)
		}
		if len(run.Command) == 0 || run.Folder != s.Work {
			s.t.Errorf("%s: the record is incomplete: %+v", what, run)
		}
		diff := s.Must("changes", run.ID)
		if i == 0 {
			s.Must("apply", run.ID)
			changed := s.Host() != s.host
			if changed != (diff != "") {
				s.t.Errorf("%s: the host has changed: %v, though the diff is:\n%s", what, changed, diff)
			}
			s.Must("apply", "--revert", run.ID)
			rig.Same(s.t, what+", reverted", contents(s.host), contents(s.Host()))
			s.host = s.Host()
		}
		s.Must("discard", run.ID)
	}
	if names := s.Runs(); len(names) > 0 {
		s.t.Errorf("%s: the data folder still has %v", what, names)
	}
	s.runs, s.ids = nil, nil
}

// contents leaves the times of change out of a Tree: a folder in which a file
// was made and removed again has another one.
func contents(tree string) string {
	var lines []string
	for l := range strings.SplitSeq(tree, "\n") {
		f := strings.Split(l, " mtime=")
		if len(f) == 2 {
			_, rest, _ := strings.Cut(f[1], " ")
			l = f[0] + " " + rest
		}
		lines = append(lines, l)
	}
	return strings.Join(lines, "\n")
}

// report says how long the machine took to get rid of the sandboxes. A second
// is what is promised; that half of them keep it holds on a loaded machine, too.
func (s *site) report() {
	if len(s.took) == 0 {
		return
	}
	sort.Slice(s.took, func(i, j int) bool { return s.took[i] < s.took[j] })
	median, worst := s.took[len(s.took)/2], s.took[len(s.took)-1]
	s.t.Logf("%d kills; all was gone after %v in the median, %v at worst", len(s.took), median, worst)
	if median > time.Second {
		s.t.Errorf("in the median it took %v until all was gone", median)
	}
}
