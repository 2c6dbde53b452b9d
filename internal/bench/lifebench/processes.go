package lifebench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// use is what the processes of a service have.
type use struct {
	service   int64 // private bytes of keeper, daemon, gate and vault
	sandboxes int64 // private bytes of all others
	processes int
	unread    int // processes whose memory may not be looked at
}

// look sums up the keeper and all below it. Processes that end meanwhile are not there.
func (s *service) look() (u use, err error) {
	all, err := below(s.pid)
	if err != nil {
		return u, err
	}
	for _, pid := range all {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		text, err := os.ReadFile(filepath.Join(dir, "smaps_rollup"))
		private := result.MemField(text, "Private_Dirty")
		if err != nil || private < 0 {
			if _, err := os.Stat(dir); err == nil {
				u.unread++
			}
			continue
		}
		u.processes++
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		switch strings.TrimSpace(string(name)) {
		case "bailey-keeper", "baileyd":
			u.service += private
		default:
			u.sandboxes += private
		}
	}
	return u, nil
}

// processor is how long processors have worked for the keeper and all below it.
func (s *service) processor() (sum time.Duration, err error) {
	all, err := below(s.pid)
	if err != nil {
		return 0, err
	}
	for _, pid := range all {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, name := range tasks {
			text, err := os.ReadFile(name)
			if err != nil {
				continue // it has ended
			}
			first, _, _ := strings.Cut(string(text), " ")
			n, err := strconv.ParseInt(strings.TrimSpace(first), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s has no time in it: %q", name, text)
			}
			sum += time.Duration(n)
		}
	}
	return sum, nil
}

// below gives a process and all that descend from it.
func below(root int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		if parent, ok := parentOf(text); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all, nil
}

// parentOf reads /proc/PID/stat, in which a name may have any characters.
func parentOf(stat []byte) (int, bool) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, false
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 2 {
		return 0, false
	}
	pid, err := strconv.Atoi(fields[1])
	return pid, err == nil
}
