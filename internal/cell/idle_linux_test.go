package cell

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// own gives a process's own memory in kilobytes, and its processor time in ticks.
func own(t *testing.T, pid int) (kb, ticks int) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), "Private_Dirty:"); ok {
			fmt.Sscan(v, &kb)
		}
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var user, system int
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return kb, user + system
}

// A cell with nothing to do takes next to nothing, also after it had much to do.
func TestIdle(t *testing.T) {
	const fresh, returned = 2048, 2560 // KB
	r := start(t, nil)
	c := r.speak()
	pid := r.cmd.Process.Pid
	first, _ := own(t, pid)
	for i := range 50 {
		id := fmt.Sprint("e", i)
		if _, err := c.Run(testContext(t), sh(id, "head -c 3000000 /dev/zero"), nil, 1<<20); err != nil {
			t.Fatal(err)
		}
		c.Forget(testContext(t), id)
	}
	busy, _ := own(t, pid)
	idle := busy
	for end := time.Now().Add(20 * time.Second); idle > returned && time.Now().Before(end); idle, _ = own(t, pid) {
		time.Sleep(20 * time.Millisecond) // it gives memory back by its own clock; nothing tells
	}
	_, before := own(t, pid)
	time.Sleep(time.Second) // in which it has nothing to do
	_, after := own(t, pid)
	t.Logf("private memory: %d KB fresh, %d busy, %d idle; %d ticks in an idle second", first, busy, idle, after-before)
	if first > fresh || idle > returned || after-before > 1 {
		t.Error("that is more than a process may take that only waits")
	}
}
