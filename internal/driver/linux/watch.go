package linux

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// memoryInterval is how often memory is added up where nothing else bounds it.
const memoryInterval = 250 * time.Millisecond

// watchMemory keeps the default memory limit where the host gives no control
// group, as for an ordinary user without delegation: it adds up what the
// sandbox's processes hold and ends the sandbox above the limit. A program can
// take more for a moment; it cannot keep it. A limit that was asked for is never
// held this way: Create refuses it.
func (in *instance) watchMemory(limit int64) {
	if in.spec.Held != nil {
		select {
		case <-in.spec.Held:
		case <-in.done:
			return
		case <-in.left:
			return
		}
	}
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		select {
		case <-in.done:
			return
		case <-in.left:
			return
		case <-tick.C:
		}
		total, name := residentBelow(in.first.pid)
		if total > limit {
			in.mu.Lock()
			in.victim, in.peak = name, total
			in.mu.Unlock()
			in.Kill(bailey.EndOOM)
			return
		}
	}
}

// residentBelow adds up the anonymous and shared memory, in bytes, of a process
// and its descendants, which are all processes of its PID namespace, and gives
// the name of the largest. Shared pages count once for each who has them, so
// the sum errs on the side of the host.
func residentBelow(pid int) (total int64, largest string) {
	var most int64
	for list := []int{pid}; len(list) > 0; {
		pid := list[len(list)-1]
		list = list[:len(list)-1]
		proc := "/proc/" + strconv.Itoa(pid)
		status, err := os.ReadFile(proc + "/status")
		if err != nil {
			continue
		}
		n := parseResident(status)
		if total += n; n > most {
			most, largest = n, processName(status)
		}
		threads, _ := os.ReadDir(proc + "/task")
		for _, t := range threads {
			children, err := os.ReadFile(proc + "/task/" + t.Name() + "/children")
			if err != nil {
				continue
			}
			for _, c := range strings.Fields(string(children)) {
				if n, err := strconv.Atoi(c); err == nil {
					list = append(list, n)
				}
			}
		}
	}
	return total, largest
}

// parseResident reads RssAnon and RssShmem of /proc/PID/status (proc(5)), in bytes.
func parseResident(status []byte) (n int64) {
	for line := range bytes.Lines(status) {
		f := bytes.Fields(line)
		if len(f) == 3 && (string(f[0]) == "RssAnon:" || string(f[0]) == "RssShmem:") {
			if kb, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil {
				n += kb << 10
			}
		}
	}
	return n
}

// processName reads the name from /proc/PID/status. The kernel has escaped
// what would end the line; what else is odd in it is quoted.
func processName(status []byte) string {
	line, _, _ := bytes.Cut(status, []byte("\n"))
	name, ok := bytes.CutPrefix(line, []byte("Name:\t"))
	if !ok {
		return ""
	}
	q := strconv.QuoteToASCII(string(name))
	return q[1 : len(q)-1]
}
