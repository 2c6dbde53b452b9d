package way

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// idleVariable says how many idle sandboxes TestIdle opens; 1,000 is what the
// targets are for.
const idleVariable = "BAILEY_TEST_IDLE"

// TestIdle: sandboxes that do nothing cost little memory and no time.
func TestIdle(t *testing.T) {
	y := newYard(t)
	y.set("TOKEN", "real-value-of-the-token")
	many := 50
	if n, err := strconv.Atoi(os.Getenv(idleVariable)); err == nil {
		many = n
	}
	open := func(i int) {
		id := fmt.Sprintf("idle-%d", i)
		if _, err := y.ways.Open(t.Context(), Opening{Sandbox: id, Lineage: id, Policy: y.policy(secretRule), Names: y.names(id)}); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		u, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		tcp, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		udp, err := u.(*net.UDPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		defer udp.Close()
		if err := y.ways.Attach(t.Context(), id, tcp, udp); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 { // what all have in common
		open(i)
	}
	began := time.Now()
	gate, vault := ticks(t, y.ways.Pid()), ticks(t, y.ways.process.VaultPid())
	for i := range many {
		open(10 + i)
	}
	each := time.Since(began) / time.Duration(many)
	gate, vault = ticks(t, y.ways.Pid())-gate, ticks(t, y.ways.process.VaultPid())-vault
	var cost int64
	y.eventually("what opening has left behind is given back", func() bool {
		cost = private(t, y.ways.Pid())
		return cost < 24<<20+int64(many)*(96<<10)
	})
	y.eventually("the gate comes to rest", func() bool {
		a := ticks(t, y.ways.Pid())
		time.Sleep(300 * time.Millisecond)
		return ticks(t, y.ways.Pid()) == a
	})
	start := time.Now()
	if _, err := y.ways.Used(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := time.Since(start)
	a := ticks(t, y.ways.Pid())
	time.Sleep(time.Second)
	b := ticks(t, y.ways.Pid())
	t.Logf("%d sandboxes: %s to open one (ticks: gate %d, vault %d), %d KB in all, Used takes %s, %d ticks of 10 ms in a second of rest", many, each, gate, vault, cost>>10, look, b-a)
	if b-a > 2 {
		t.Errorf("in a second of rest the gate works for %d ms", 10*(b-a))
	}
}

// private gives a process's private memory, in bytes.
func private(t testing.TB, pid int) (n int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kb int64
		if k, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kb); k == 1 {
			n += kb << 10
		}
	}
	return n
}

// ticks gives the processor time that a process has had, in hundredths of a second.
func ticks(t testing.TB, pid int) (n int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	for _, f := range fields[11:13] {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		n += v
	}
	return n
}
