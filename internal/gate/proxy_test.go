package gate

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
)

// socks gives the request of a SOCKS5 client for a name.
func socks(name string, port uint16) string {
	return "\x05\x01\x00" + "\x05\x01\x00\x03" + string([]byte{byte(len(name))}) + name + string([]byte{byte(port >> 8), byte(port)})
}

func TestSOCKS(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	rule := fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d', '9']", port)
	end := string([]byte{byte(port >> 8), byte(port)})
	const greeted, reply = "\x05\x00", "\x05%c\x00\x01\x00\x00\x00\x00\x00\x00"
	for _, c := range []struct {
		name, sent string
		code       int    // of the reply; -1: none
		want       string // the one record; "" none
	}{
		{"a name", socks("db.test", port), 0, fmt.Sprintf("stream allow rule db.test:%d", port)},
		{"in other letters", socks("DB.Test.", port), 0, fmt.Sprintf("stream allow rule db.test:%d", port)},
		{"its address", "\x05\x01\x00\x05\x01\x00\x01\xc6\x12\x00\x10" + end, 0, fmt.Sprintf("stream allow rule db.test:%d", port)},
		{"its address of IPv6", "\x05\x01\x00\x05\x01\x00\x04\xfd\xba\x11\xe4\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10" + end, 0, fmt.Sprintf("stream allow rule db.test:%d", port)},
		{"another name", socks("evil.test", port), 2, fmt.Sprintf("stream deny no_rule evil.test:%d", port)},
		{"a public address", "\x05\x01\x00\x05\x01\x00\x01\x08\x08\x08\x08" + end, 2, fmt.Sprintf("stream deny literal_address 8.8.8.8:%d", port)},
		{"nobody there", socks("db.test", 9), 5, "stream allow rule db.test:9"},
		{"NUL (N7)", socks("evil.test\x00.db.test", port), 1, `stream deny bad_name evil.test\x00.db.test:0`},
		{"CRLF (N8)", socks("db.test\r\nHost: evil.test", port), 1, `stream deny bad_name db.test\r\nHost: evil.test:0`},
		{"a number (N11)", socks("2130706433", port), 1, "stream deny bad_name 2130706433:0"},
		{"no name", socks("", port), 1, "stream deny bad_name :0"},
		{"port 0", socks("db.test", 0), 1, "stream deny socks db.test:0"},
		{"BIND", "\x05\x01\x00\x05\x02\x00\x03\x07db.test" + end, 7, "stream deny socks_command db.test:0"},
		{"UDP", "\x05\x01\x00\x05\x03\x00\x03\x07db.test" + end, 7, "stream deny socks_command db.test:0"},
		{"an unknown type", "\x05\x01\x00\x05\x01\x00\x09\x07db.test" + end, 8, "stream deny socks :0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			y := newYard(t, n, parse(t, rule))
			if strings.HasPrefix(c.name, "its") {
				y.lookup(t, "db.test")
			}
			before := n.dials.Load()
			client := y.proxy(t)
			fmt.Fprint(client, c.sent)
			answer := make([]byte, 12)
			if _, err := io.ReadFull(client, answer); err != nil || string(answer) != greeted+fmt.Sprintf(reply, c.code) {
				t.Fatalf("%x, %v", answer, err)
			}
			if c.code == 0 {
				fmt.Fprint(client, "canary")
				client.CloseWrite()
				if back, err := io.ReadAll(client); err != nil || string(back) != "canary" {
					t.Errorf("%q, %v", back, err)
				}
			} else if rest, err := io.ReadAll(client); err != nil || len(rest) != 0 {
				t.Errorf("%q, %v", rest, err)
			} else if n.dials.Load() != before {
				t.Error("something was dialled")
			}
			if got := y.only(t); got != c.want {
				t.Errorf("recorded %q, not %q", got, c.want)
			}
			if r := y.acts(); len(r) == 1 && r[0].Egress.Via != "socks5" {
				t.Errorf("%+v", r[0].Egress)
			}
		})
	}
}

// A client that wants to authenticate is told that nobody asks it to.
func TestSOCKSMethods(t *testing.T) {
	y := newYard(t, newInternet(t, nil), parse(t))
	client := y.proxy(t)
	fmt.Fprint(client, "\x05\x01\x02")
	if answer, err := io.ReadAll(client); err != nil || string(answer) != "\x05\xff" {
		t.Errorf("%x, %v", answer, err)
	}
	if len(y.acts()) != 0 {
		t.Errorf("%+v", y.acts())
	}
}

func TestConnect(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	for _, c := range []struct {
		to     string
		status string
		want   string
	}{
		{fmt.Sprintf("db.test:%d", port), "200", fmt.Sprintf("stream allow rule db.test:%d", port)},
		{"evil.test:443", "403", "stream deny no_rule evil.test:443"},
		{"169.254.169.254:80", "403", "stream deny metadata 169.254.169.254:80"},
		{"db.test:9", "502", "stream allow rule db.test:9"},
	} {
		y := newYard(t, n, parse(t, fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d', '9']", port)))
		client := y.proxy(t)
		fmt.Fprintf(client, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", c.to, c.to)
		head := make([]byte, 12)
		if _, err := io.ReadFull(client, head); err != nil || string(head) != "HTTP/1.1 "+c.status {
			t.Errorf("%s: %q, %v", c.to, head, err)
		}
		if c.status == "200" {
			fmt.Fprint(client, "canary")
			client.CloseWrite()
			if rest, err := io.ReadAll(client); err != nil || !strings.HasSuffix(string(rest), "\r\n\r\ncanary") {
				t.Errorf("%q, %v", rest, err)
			}
		}
		if got := y.only(t); got != c.want {
			t.Errorf("recorded %q, not %q", got, c.want)
		}
	}
}

// A13: what one sandbox has looked up is nothing to another.
func TestNamesOfAnotherSandbox(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	rule := fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port)
	y := newYard(t, n, parse(t, rule))
	a, ok := y.lookup(t, "db.test")
	if !ok {
		t.Fatal("no address")
	}
	_, other := y.add(t, "other", parse(t, rule))
	isReset(t, y.connectAt(t, other, netip.AddrPortFrom(a, port)))
	if got, want := y.only(t), fmt.Sprintf("stream deny unknown_address %s:%d", a, port); got != want || y.acts()[0].Sandbox != "other" {
		t.Errorf("recorded %q, not %q", got, want)
	}
}

// A9: who a sandbox is, is the listener. What it says of itself does not count.
func TestIdentityIsTheListener(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	y := newYard(t, n, parse(t, fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port)))
	_, other := y.add(t, "other", parse(t))
	client := y.connectAt(t, other, netip.MustParseAddrPort("198.18.0.1:3128"))
	fmt.Fprintf(client, "CONNECT db.test:%d HTTP/1.1\r\nHost: sandbox\r\nProxy-Authorization: Basic c2FuZGJveDo=\r\nX-Sandbox: sandbox\r\n\r\n", port)
	if answer, err := io.ReadAll(client); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 403") {
		t.Errorf("%q, %v", answer, err)
	}
	if list := y.acts(); len(list) != 1 || list[0].Sandbox != "other" || list[0].Decision != "deny" {
		t.Errorf("%+v", list)
	}
}
