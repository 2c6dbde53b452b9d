package gvisor_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/driver"
)

// Every connection ends at the listeners, and every question about a name; nothing
// else is let out, and nothing of it gets into the sandbox's own namespace.
func TestOutlet(t *testing.T) {
	r := newRig(t)
	s := r.spec("sh", "-c", `
		for to in "93.184.216.34 80" "2001:4860::8888 443" "198.18.0.1 3128" "192.0.2.1 64053" "127.0.0.1 99"; do
			set -- $to; echo "$2" | nc -w 5 $1 $2 || echo "$1 refused"
		done
		nslookup example.com 8.8.8.8 | head -1`)
	s.Outlet = true
	in, output := r.start(s)
	o := in.Outlet()
	l, err := net.FileListener(o.TCP)
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.FilePacketConn(o.UDP)
	if err != nil {
		t.Fatal(err)
	}
	o.TCP.Close()
	o.UDP.Close()
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 100)
			n, _ := c.Read(buf)
			c.Write([]byte("gate " + string(buf[:n])))
			c.Close()
		}
	})
	names := 0
	tasks.Go(func() {
		for buf := make([]byte, 1000); ; {
			n, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			names++
			u.WriteTo(append(buf[:2:2], append([]byte{0x81, 0x83}, buf[4:n]...)...), from)
		}
	})
	out := output()
	l.Close()
	u.Close()
	tasks.Wait()
	want := "gate 80\ngate 443\ngate 3128\nnc:"
	if !strings.HasPrefix(out, want) || !strings.Contains(out, "192.0.2.1 refused") || !strings.Contains(out, "127.0.0.1 refused") || !strings.Contains(out, "Server:\t\t8.8.8.8") || names == 0 {
		t.Errorf("%q, %d names", out, names)
	}
}

// Without an outlet there is nothing but a loopback of its own.
func TestNoOutlet(t *testing.T) {
	r := newRig(t)
	out, _ := r.run(r.spec("sh", "-c", "ip -o link; nc -w 2 93.184.216.34 80 </dev/null && echo reached"))
	if strings.Contains(out, driver.LinkName) || !strings.Contains(out, "lo:") || strings.Contains(out, "reached") {
		t.Errorf("%q", out)
	}
}
