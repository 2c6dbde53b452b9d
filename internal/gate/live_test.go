package gate

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// A5: a version that forbids what is open ends it, and nothing written after the
// update arrives. What it still allows goes on.
func TestUpdateEndsStreams(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}, "ok.test": {{"127.0.10.2"}}, "kept.test": {{"127.0.10.3"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	n.serve(t, fmt.Sprintf("127.0.10.2:%d", port), n.secure("ok.test"))
	n.serve(t, fmt.Sprintf("127.0.10.3:%d", port), n.echo)
	raw, spliced := fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port), fmt.Sprintf("hosts: ['ok.test:%d'], tls: splice", port)
	kept := fmt.Sprintf("hosts: [kept.test], protocol: tcp, ports: ['%d'], limits: {requests: '1'}", port)
	y := newYard(t, n, parse(t, raw, spliced, kept))
	talk := func(c net.Conn) error {
		if _, err := fmt.Fprint(c, "hello"); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 5))
		return err
	}
	clear := y.dialName(t, "db.test", port)
	below := y.dialName(t, "ok.test", port)
	secure := tls.Client(below, &tls.Config{ServerName: "ok.test", InsecureSkipVerify: true})
	stays := y.dialName(t, "kept.test", port)
	for _, c := range []net.Conn{clear, secure, stays} {
		if err := talk(c); err != nil {
			t.Fatal(err)
		}
	}
	y.box.Update(parse(t, kept), nil)
	for _, r := range y.acts() {
		if r.Egress.Host != "kept.test" {
			end := y.wait(t, endOf(r.Seq))
			if end.Outcome.Error != "policy_changed" || r.Policy == parse(t, kept).Digest() {
				t.Errorf("%s: %+v", r.Egress.Host, end.Outcome)
			}
		}
	}
	saw := n.saw()
	if _, err := fmt.Fprint(clear, "canary"); err == nil { // or the reset comes with the next look
		isReset(t, clear)
	}
	isReset(t, below)
	if n.saw() != saw {
		t.Error("the server saw what was sent after the update")
	}
	if err := talk(stays); err != nil {
		t.Errorf("what is still allowed was ended: %v", err)
	}
	if _, ok := y.lookup(t, "db.test"); ok {
		t.Error("the name has an address still")
	}
}

// A stream that is judged just before an update is not held by nobody.
func TestHoldAfterUpdate(t *testing.T) {
	y := newYard(t, newInternet(t, nil), parse(t, "hosts: [ok.test]"))
	h, err := policy.ParseHost("ok.test")
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Request{Stage: policy.Connect, To: policy.At(h, 443), Scheme: policy.TLS}
	a := y.box.Begin(act.Stream, act.Redirect, r.To)
	if d := a.Judge(t.Context(), r); d.Verdict == policy.Deny {
		t.Fatal(d)
	}
	y.box.Update(nil, nil)
	ended := make(chan act.Denial, 1)
	defer y.box.Hold(r, func(d act.Denial) { ended <- d })()
	if d := <-ended; d.Reason != policy.ReasonNoPolicy || d.What != "connect to ok.test:443" || d.Sandbox != "sandbox" {
		t.Errorf("%+v", d)
	}
}

// A6: 1,000 requests while the policy changes. Each is decided by one version,
// which its record names, and was answered as that version says.
func TestUpdateRace(t *testing.T) {
	y := newYard(t, newInternet(t, nil), parse(t))
	allows, denies := parse(t, "hosts: [ok.test]"), parse(t, "hosts: [other.test]")
	h, err := policy.ParseHost("ok.test")
	if err != nil {
		t.Fatal(err)
	}
	to := policy.At(h, 80)
	const requests = 1000
	var work, toggling sync.WaitGroup
	var stop atomic.Bool
	start := make(chan bool)
	verdicts := make([]policy.Verdict, requests)
	seqs := make([]int64, requests)
	for i := range requests {
		work.Go(func() {
			<-start
			a := y.box.Begin(act.HTTP, act.Redirect, to)
			first := a.Judge(t.Context(), policy.Request{Stage: policy.Connect, To: to, Scheme: policy.HTTP})
			d := a.Judge(t.Context(), policy.Request{Stage: policy.Head, To: to, Scheme: policy.HTTP, Method: "GET", Path: "/", BodySize: -1})
			if (first.Verdict == policy.Deny) != (d.Verdict == policy.Deny) {
				t.Error("two versions decided one request")
			}
			if err := a.Commit(); err != nil {
				t.Error(err)
			}
			verdicts[i] = d.Verdict
			seqs[i] = a.(*egress).seq
			a.End(audit.Outcome{})
		})
	}
	toggling.Go(func() {
		for i := 0; !stop.Load(); i++ {
			y.box.Update([]*policy.Policy{allows, denies}[i%2], nil)
		}
	})
	close(start)
	work.Wait()
	stop.Store(true)
	toggling.Wait()
	list := y.acts()
	if len(list) != requests {
		t.Fatalf("%d records", len(list))
	}
	bySeq := map[int64]audit.Record{}
	for _, r := range list {
		bySeq[r.Seq] = r
	}
	for i, seq := range seqs {
		r := bySeq[seq]
		want := map[string]string{allows.Digest(): "allow", denies.Digest(): "deny", parse(t).Digest(): "deny"}[r.Policy]
		got := map[bool]string{true: "deny", false: "allow"}[verdicts[i] == policy.Deny]
		if r.Decision != want || got != want {
			t.Fatalf("the version says %q, the record %q, the sandbox was told %q", want, r.Decision, got)
		}
	}
}

// A keep-alive connection's next request is judged by the new version.
func TestUpdateBetweenRequests(t *testing.T) {
	y := newYard(t, newInternet(t, nil), parse(t, "hosts: [ok.test]"))
	c := y.dialName(t, "ok.test", 80)
	in := bufio.NewReader(c)
	for _, want := range []int{200, 403} {
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n")
		r, err := http.ReadResponse(in, nil)
		if err != nil || r.StatusCode != want {
			t.Fatalf("%v, %v", r, err)
		}
		y.box.Update(parse(t, "hosts: [ok.test], methods: [PUT]"), nil)
	}
}

// In audit mode what is denied passes and is recorded as what it is; a metadata
// service and addresses inside do not.
func TestAuditMode(t *testing.T) {
	n := newInternet(t, map[string][][]string{"evil.test": {{"127.0.10.1"}}, "inside.test": {{"10.0.0.1"}}, "ok.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	y := newYard(t, n, parse(t, "mode: audit", fmt.Sprintf("hosts: [ok.test], protocol: tcp, ports: ['%d']", port)))
	c := y.dialName(t, "evil.test", port)
	fmt.Fprint(c, "\x00binary")
	c.CloseWrite()
	if back, err := io.ReadAll(c); err != nil || string(back) != "\x00binary" {
		t.Errorf("%q, %v", back, err)
	}
	if r := y.acts(); len(r) != 1 || r[0].Decision != "allow" || r[0].Reason != "audit_mode" || r[0].Detail["would_deny"] != policy.ReasonNoRule {
		t.Errorf("%+v", r)
	}
	c = y.dialName(t, "inside.test", port)
	fmt.Fprint(c, "\x00binary")
	isReset(t, c)
	meta := y.proxy(t)
	fmt.Fprint(meta, "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: x\r\n\r\n")
	io.Copy(io.Discard, meta)
	list := y.acts()
	if len(list) != 3 || list[1].Reason != "address_internal" || list[2].Reason != policy.ReasonMetadata || list[1].Decision != "deny" || list[2].Decision != "deny" {
		t.Errorf("%+v", list)
	}
	// An open stream ends when the policy is enforced.
	c = y.dialName(t, "evil.test", port)
	fmt.Fprint(c, "\x00binary")
	if _, err := io.ReadFull(c, make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	y.box.Update(parse(t, "hosts: [ok.test]"), nil)
	isReset(t, c)
}

// What comes of secrets' look at a stream that nobody understands.
type watching struct {
	act.Secrets
}

func (watching) Opaque() func([]byte) error {
	return func(p []byte) error {
		if len(p) > 10 {
			return &act.Refused{Reason: "placeholder_elsewhere", Why: "a placeholder"}
		}
		return nil
	}
}

func TestPlaceholderInRawStream(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	p := parse(t, fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port))
	y := newYard(t, n, p)
	y.box.Update(p, watching{})
	c := y.dialName(t, "db.test", port)
	fmt.Fprint(c, "short")
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "a placeholder")
	isReset(t, c)
	if end := y.wait(t, endOf(1)); end.Outcome.Error != "placeholder_elsewhere" || end.Decision != "deny" || end.Reason != "placeholder_elsewhere" || n.saw() != "short" {
		t.Errorf("%+v; the server saw %q", end, n.saw())
	}
	y.server.Close()
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.denials) != 1 || y.denials[0].Reason != "placeholder_elsewhere" || y.denials[0].Seq != 1 {
		t.Errorf("told of %+v", y.denials)
	}
}

// faulty panics at what a stream sends.
type faulty struct {
	act.Secrets
}

func (faulty) Opaque() func([]byte) error {
	return func(p []byte) error { panic(string(p)) }
}

// A fault of the gate's ends the stream that brought it out, and not the gate:
// in the middle of a stream, before it has begun, and in a name server's answer.
func TestFaultsEndOneStream(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	p := parse(t, fmt.Sprintf("hosts: [db.test, ok.test], protocol: tcp, ports: ['%d']", port))
	y := newYard(t, n, p)
	other, listener := y.add(t, "other", p)
	y.box.Update(p, faulty{})
	c := y.dialName(t, "db.test", port)
	fmt.Fprint(c, "canary")
	isReset(t, c)
	end := y.wait(t, endOf(1))
	if end.Reason != act.Fault.Reason || end.Decision != "deny" || end.Outcome.Error != act.Fault.Reason || n.saw() != "" {
		t.Errorf("%+v; the server saw %q", end, n.saw())
	}
	h, err := policy.ParseHost("db.test")
	if err != nil {
		t.Fatal(err)
	}
	to, _, err := other.names.Addresses(h)
	if err != nil {
		t.Fatal(err)
	}
	table := y.box.streams.DNS.Names
	y.box.streams.DNS.Names = nil // nothing that reads it goes on
	isReset(t, y.connect(t, netip.AddrPortFrom(to, port)))
	q := new(dns.Msg)
	q.SetQuestion("db.test.", dns.TypeA)
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if answer := y.box.streams.DNS.Answer(t.Context(), b, false); answer != nil {
		t.Errorf("answered with %x", answer)
	}
	list := y.acts()
	y.box.streams.DNS.Names = table
	if len(list) != 3 || list[1].Kind != string(act.Stream) || list[1].Reason != act.Fault.Reason || list[2].Kind != string(act.NameLookup) || list[2].Reason != act.Fault.Reason {
		t.Errorf("%+v", list)
	}
	well := y.connectAt(t, listener, netip.AddrPortFrom(to, port))
	fmt.Fprint(well, "well")
	if _, err := io.ReadFull(well, make([]byte, 4)); err != nil {
		t.Errorf("another sandbox's stream: %v", err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	y := newYard(t, n, parse(t, fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port), "hosts: [ok.test]"))
	open := y.dialName(t, "db.test", port)
	fmt.Fprint(open, "x")
	if _, err := io.ReadFull(open, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	waiting, half := y.dialName(t, "ok.test", 443), y.proxy(t)
	fmt.Fprint(half, "\x05")
	y.box.Close()
	for _, c := range []net.Conn{open, waiting, half} {
		if _, err := io.Copy(io.Discard, c); err == nil {
			continue // an end is as good as a reset
		} else if !errors.Is(err, io.EOF) {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Error("a connection lives on")
			}
		}
	}
	if end := y.wait(t, endOf(1)); end.Outcome.Error != "closed" {
		t.Errorf("%+v", end.Outcome)
	}
	if _, err := net.Dial("tcp", y.listener); err == nil {
		t.Error("the listener is open still")
	}
	if y.server.Box("sandbox") != nil {
		t.Error("the box is there still")
	}
	a := y.box.Begin(act.Stream, act.Redirect, policy.Authority{})
	if d := a.Judge(t.Context(), policy.Request{}); d.Verdict != policy.Deny || d.Reason != "closed" {
		t.Errorf("%+v", d)
	}
}
