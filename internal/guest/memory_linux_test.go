//go:build linux && (amd64 || arm64)

package guest

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// privateDirty gives a process's own memory in kilobytes.
func privateDirty(t *testing.T, pid int) (kb int) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), "Private_Dirty:"); ok {
			fmt.Sscan(v, &kb)
			return kb
		}
	}
	t.Fatal("no Private_Dirty")
	return 0
}

// A first process that has not worked hard stays below what five hundred
// sandboxes on one machine may take each; one that has gives most of it back.
func TestIdleMemory(t *testing.T) {
	// It held 1650 to 2160 KB in some fifty runs, by where on its pages lies what it keeps.
	const returned = 2560 // KB
	for _, framed := range []bool{false, true} {
		s := startSandbox(t, "--lease")
		c := s.client(framed)
		fresh := privateDirty(t, s.cmd.Process.Pid)
		for i := range 10 {
			run(t, c, fmt.Sprint("few", i), "echo hello")
		}
		few := privateDirty(t, s.cmd.Process.Pid)
		for i := range 300 {
			run(t, c, fmt.Sprint(i), "echo hello")
			c.Forget(testContext(t), fmt.Sprint(i))
		}
		run(t, c, "big", "head -c 8000000 /dev/zero")
		c.Forget(testContext(t), "big")
		busy := privateDirty(t, s.cmd.Process.Pid)
		idle := busy
		for end := time.Now().Add(20 * time.Second); idle > returned && time.Now().Before(end); idle = privateDirty(t, s.cmd.Process.Pid) {
			time.Sleep(20 * time.Millisecond) // it gives memory back by its own clock; nothing tells
		}
		t.Logf("private memory: %d KB fresh, %d after ten commands, %d after hundreds, %d idle", fresh, few, busy, idle)
		if fresh > 1200 || few > 1200 || idle > returned {
			t.Errorf("an idle first process holds %d KB fresh, %d after ten commands, %d after hundreds", fresh, few, idle)
		}
	}
}
