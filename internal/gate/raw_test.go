package gate

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/policy"
)

// P4: a tcp rule by name holds for a stream to the name's address, and counts
// and records it.
func TestRawStream(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	y := newYard(t, n, parse(t, fmt.Sprintf("name: db, hosts: [db.test], protocol: tcp, ports: ['%d']", port)))
	c := y.dialName(t, "db.test", port)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 40000)
	go func() {
		c.Write(sent)
		c.CloseWrite()
	}()
	back, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(back, sent) {
		t.Fatalf("%d of %d bytes came back: %v", len(back), len(sent), err)
	}
	if got, want := y.only(t), fmt.Sprintf("stream allow rule db.test:%d", port); got != want {
		t.Errorf("recorded %q, not %q", got, want)
	}
	r := y.acts()[0]
	if r.Rule != "db" || r.Egress.Address != fmt.Sprintf("127.0.10.1:%d", port) || r.Policy == "" || r.Egress.Scheme != "tcp" || r.Egress.Via != "redirect" || len(r.Egress.Steps) == 0 {
		t.Errorf("%+v %+v", r, r.Egress)
	}
	end := y.wait(t, endOf(r.Seq))
	if end.Outcome.Sent != int64(len(sent)) || end.Outcome.Received != int64(len(sent)) || end.Outcome.Error != "" {
		t.Errorf("%+v", end.Outcome)
	}
}

// A server that goes on sending after the client has ended its side, and the
// other way round.
func TestRawHalfClose(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	y := newYard(t, n, parse(t, fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port)))
	c := y.dialName(t, "db.test", port)
	fmt.Fprint(c, "question")
	buf := make([]byte, 8)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "question" {
		t.Fatalf("%q, %v", buf, err)
	}
	fmt.Fprint(c, "last words")
	c.CloseWrite()
	if rest, err := io.ReadAll(c); err != nil || string(rest) != "last words" {
		t.Errorf("%q, %v", rest, err)
	}
}

// P3, and P4 the other way: what no rule has is reset, nothing is dialled or
// resolved, and there is one record.
func TestRawRefused(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}, "web.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	rule := fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port)
	for _, c := range []struct {
		name, host string
		port       uint16
		want       string
	}{
		{"another port", "db.test", port - 1, fmt.Sprintf("stream deny port db.test:%d", port-1)},
		{"SSH", "web.test", 22, "stream deny port web.test:22"},
		{"SMTP", "web.test", 25, "stream deny port web.test:25"},
		{"IRC", "web.test", 6667, "stream deny port web.test:6667"},
		{"the server's address itself", "127.0.10.1", port, fmt.Sprintf("stream deny literal_address 127.0.10.1:%d", port)},
		{"a public address", "8.8.8.8", 443, "stream deny literal_address 8.8.8.8:443"},
		{"IPv6 without a rule (I5)", "2606:4700::1111", 443, "stream deny literal_address 2606:4700::1111:443"},
		{"metadata (I1)", "169.254.169.254", 80, "stream deny metadata 169.254.169.254:80"},
		{"a synthetic address without a name", "198.19.7.7", port, fmt.Sprintf("stream deny unknown_address 198.19.7.7:%d", port)},
		{"the gate, another port", "198.18.0.1", 8080, "stream deny gate_port 198.18.0.1:8080"},
	} {
		t.Run(c.name, func(t *testing.T) {
			y := newYard(t, n, parse(t, rule, "hosts: [web.test]"))
			a, err := netip.ParseAddr(c.host)
			if err != nil {
				a, _ = y.lookup(t, c.host)
			}
			isReset(t, y.connect(t, netip.AddrPortFrom(a, c.port)))
			if got := y.only(t); got != c.want {
				t.Errorf("recorded %q, not %q", got, c.want)
			}
		})
	}
	if asked := n.asked(); len(asked) != 0 || n.dials.Load() != 0 {
		t.Errorf("asked for %q, %d connections", asked, n.dials.Load())
	}
}

// D1: names are not sent to any server, whatever is asked.
func TestNamesGoNowhere(t *testing.T) {
	n := newInternet(t, map[string][][]string{"ok.test": {{"127.0.10.1"}}})
	y := newYard(t, n, parse(t, "hosts: [ok.test]"))
	for range 3 { // A and AAAA of one lookup, and a retry, are one record
		if _, ok := y.lookup(t, "mzxw6ytboi.evil.test"); ok {
			t.Fatal("it has an address")
		}
	}
	if _, ok := y.lookup(t, "ok.test"); !ok {
		t.Fatal("a known name has none")
	}
	if asked := n.asked(); len(asked) != 0 {
		t.Errorf("asked for %q", asked)
	}
	if got := y.only(t); got != "name deny no_rule mzxw6ytboi.evil.test:0" {
		t.Errorf("recorded %q", got)
	}
	y.server.Close()
	if end := y.wait(t, endOf(y.acts()[0].Seq)); end.Detail["queries"] != "3" {
		t.Errorf("%+v", end)
	}
}

// D3: DNS to any server ends at the gate, over TCP too.
func TestDNSToAnyAddress(t *testing.T) {
	n := newInternet(t, nil)
	y := newYard(t, n, parse(t, "hosts: [ok.test]"))
	c := y.connect(t, netip.MustParseAddrPort("8.8.8.8:53"))
	query := "\x00\x1c\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05local\x04test\x00\x00\x01\x00\x01"
	fmt.Fprint(c, query)
	answer := make([]byte, 6)
	if _, err := io.ReadFull(c, answer); err != nil || answer[2] != 0x12 || answer[5]&0xf != 3 {
		t.Errorf("%x, %v", answer, err)
	}
	if got := y.only(t); got != "name deny no_rule local.test:0" {
		t.Errorf("recorded %q", got)
	}
}

// I4: the listener is no destination, neither as itself nor through its proxy.
func TestGateIsNoDestination(t *testing.T) {
	n := newInternet(t, nil)
	y := newYard(t, n, parse(t, "hosts: [ok.test]", "addresses: [198.18.0.0/15], ports: ['3128'], protocol: tcp, internal: [198.18.0.0/15, 127.0.0.0/8]"))
	listener := netip.MustParseAddrPort(y.listener)
	isReset(t, y.connect(t, listener))
	if got, want := y.only(t), fmt.Sprintf("stream deny gate_loop 127.0.0.1:%d", listener.Port()); got != want {
		t.Errorf("recorded %q, not %q", got, want)
	}
	c := y.proxy(t)
	fmt.Fprint(c, "CONNECT 198.18.0.1:3128 HTTP/1.1\r\nHost: 198.18.0.1:3128\r\n\r\n")
	if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 403") || !strings.Contains(string(answer), "gate_loop") {
		t.Errorf("%q, %v", answer, err)
	}
	if n := len(y.acts()); n != 2 {
		t.Errorf("%d records", n)
	}
}

// D4, D5, I1, I2: what a name server says decides which public address is
// dialled, and nothing else.
func TestAnswersOfNameServers(t *testing.T) {
	n := newInternet(t, map[string][][]string{
		"rebind.test":   {{"127.0.10.1"}, {"127.0.0.1"}},
		"mixed.test":    {{"10.1.2.3", "169.254.169.254", "127.0.10.1", "::1"}},
		"private.test":  {{"10.1.2.3"}},
		"meta.test":     {{"169.254.169.254"}},
		"mapped.test":   {{"::ffff:7f00:1"}},
		"nat64.test":    {{"64:ff9b::a9fe:a9fe"}},
		"synth.test":    {{"198.18.0.1"}},
		"zero.test":     {{"0.0.0.0"}},
		"internal.test": {{"127.0.0.1"}},
	})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	// The same port of the host's own loopback is a service that nobody may reach.
	local := n.serve(t, fmt.Sprintf("127.0.0.1:%d", port), n.echo)
	rule := func(host, more string) string {
		return fmt.Sprintf("hosts: [%s], protocol: tcp, ports: ['%d']%s", host, local, more)
	}
	for _, c := range []struct{ host, more, want string }{
		{"rebind.test", "", "allow rule"},
		{"rebind.test", "", "deny address_internal"}, // the second answer
		{"mixed.test", "", "allow rule"},
		{"private.test", "", "deny address_internal"},
		{"meta.test", ", internal: [169.254.0.0/16]", "deny address_metadata"},
		{"mapped.test", "", "deny address_internal"},
		{"nat64.test", ", internal: [169.254.0.0/16]", "deny address_metadata"},
		{"synth.test", ", internal: [198.18.0.0/15]", "deny address_gate"},
		{"zero.test", "", "deny address_internal"},
		{"internal.test", "", "deny address_internal"},
		{"internal.test", ", internal: [127.0.0.0/8]", "allow rule"},
	} {
		t.Run(c.host+c.more, func(t *testing.T) {
			y := newYard(t, n, parse(t, rule(c.host, c.more)))
			client := y.dialName(t, c.host, port)
			if strings.HasPrefix(c.want, "allow") {
				fmt.Fprint(client, "canary")
				client.CloseWrite()
				if back, err := io.ReadAll(client); err != nil || string(back) != "canary" {
					t.Errorf("%q, %v", back, err)
				}
			} else {
				before := n.dials.Load()
				isReset(t, client)
				if n.dials.Load() != before {
					t.Error("something was dialled")
				}
			}
			if got, want := y.only(t), fmt.Sprintf("stream %s %s:%d", c.want, c.host, port); got != want {
				t.Errorf("recorded %q, not %q", got, want)
			}
		})
	}
}

// An upstream that cannot be reached is an allowed act that came to nothing.
func TestUnreachable(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	y := newYard(t, n, parse(t, "hosts: [db.test, gone.test], protocol: tcp, ports: ['9']"))
	for host, code := range map[string]string{"db.test": "connect_refused", "gone.test": "name_unresolved"} {
		isReset(t, y.dialName(t, host, 9))
		r := y.wait(t, func(r audit.Record) bool { return r.Kind == "stream" && r.Egress.Host == host })
		if r.Decision != "allow" {
			t.Errorf("%+v", r)
		}
		if end := y.wait(t, endOf(r.Seq)); end.Outcome.Error != code {
			t.Errorf("%s ended with %+v", host, end.Outcome)
		}
	}
}

// The limit of a stream's bytes holds to the byte that passes it.
func TestRawUploadLimit(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	y := newYard(t, n, parse(t, fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d'], limits: {upload: '1K', requests: '2'}", port)))
	c := y.dialName(t, "db.test", port)
	c.Write(make([]byte, 1000))
	if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	c.Write(make([]byte, 25))
	isReset(t, c)
	end := y.wait(t, endOf(y.acts()[0].Seq))
	if end.Outcome.Error != policy.ReasonLimitUpload || end.Outcome.Sent != 1000 {
		t.Errorf("%+v", end.Outcome)
	}
	isReset(t, y.dialName(t, "db.test", port))
	if list := y.acts(); len(list) != 2 || list[1].Decision != "deny" || list[1].Reason != policy.ReasonLimitUpload {
		t.Errorf("%+v", list)
	}
	if len(n.saw()) != 1000 {
		t.Errorf("the server saw %d bytes", len(n.saw()))
	}
}

// Nothing passes that cannot be recorded.
func TestBrokenLog(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	y := newYard(t, n, parse(t, fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port)))
	y.journal.broken = true
	c := y.dialName(t, "db.test", port)
	fmt.Fprint(c, "canary")
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the connection was not reset")
	}
	if n.saw() != "" {
		t.Errorf("the server saw %q", n.saw())
	}
}
