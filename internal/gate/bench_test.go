package gate

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// BenchmarkDownload is the throughput of a stream that is passed on unread.
func BenchmarkDownload(b *testing.B) {
	const size = 256 << 20
	block := make([]byte, 1<<20)
	n := newInternet(b, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(b, "127.0.10.1:0", func(c net.Conn) {
		for range size / len(block) {
			c.Write(block)
		}
	})
	y := newYard(b, n, parse(b, fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port)))
	b.SetBytes(size)
	for b.Loop() {
		c := y.dialName(b, "db.test", port)
		if got, err := io.Copy(io.Discard, c); err != nil || got != size {
			b.Fatal(got, err)
		}
	}
}

// BenchmarkAct is what the gate adds to a request: begin, judge, commit and end.
func BenchmarkAct(b *testing.B) {
	y := newYard(b, newInternet(b, nil), parse(b, "hosts: [ok.test], limits: {requests: '1000000000'}"))
	h, err := policy.ParseHost("ok.test")
	if err != nil {
		b.Fatal(err)
	}
	r := policy.Request{Stage: policy.Head, To: policy.At(h, 443), Scheme: policy.HTTPS, Method: "GET", Path: "/", BodySize: -1}
	b.ReportAllocs()
	for b.Loop() {
		a := y.box.Begin(act.HTTP, act.Redirect, r.To)
		if a.Judge(b.Context(), r).Verdict != policy.Allow || !a.Count(policy.Usage{Requests: 1}) || a.Commit() != nil {
			b.Fatal("it was refused")
		}
	}
}
