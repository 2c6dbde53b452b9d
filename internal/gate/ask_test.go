package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// person answers as told, and keeps the questions.
type person struct {
	mu     sync.Mutex
	asked  []Question
	answer func(ctx context.Context) (Answer, error)
}

func (p *person) Ask(ctx context.Context, q Question) (Answer, error) {
	p.mu.Lock()
	p.asked = append(p.asked, q)
	p.mu.Unlock()
	return p.answer(ctx)
}

func says(a Answer) func(context.Context) (Answer, error) {
	return func(context.Context) (Answer, error) { return a, nil }
}

// T53, T56: a rule that asks lets nothing pass without a yes, and a question has
// all that a person needs.
func TestAsk(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	p := parse(t, fmt.Sprintf("name: db, description: our data, action: ask, hosts: [db.test], protocol: tcp, ports: ['%d']", port))
	for _, c := range []struct {
		name   string
		answer func(context.Context) (Answer, error) // nil: there is nobody
		want   []string                              // of two streams
		asked  int
	}{
		{"nobody", nil, []string{"deny approval_unavailable", "deny approval_unavailable"}, 0},
		{"once", says(Answer{Allow: true, By: "ada", Via: "terminal"}), []string{"allow approved", "allow approved"}, 2},
		{"session", says(Answer{Allow: true, Session: true}), []string{"allow approved", "allow granted"}, 1},
		{"no", says(Answer{}), []string{"deny approval_denied", "deny approval_denied"}, 1},
		{"no answer", func(ctx context.Context) (Answer, error) {
			<-ctx.Done()
			return Answer{}, ctx.Err()
		}, []string{"deny approval_timeout", "deny approval_timeout"}, 2},
		{"the person has gone", func(context.Context) (Answer, error) { return Answer{Allow: true}, errors.New("gone") },
			[]string{"deny approval_unavailable", "deny approval_unavailable"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			asker := &person{answer: c.answer}
			y := newYard(t, n, p, func(o *Options) {
				o.AskTimeout = 50 * time.Millisecond
				if c.answer != nil {
					o.Asker = asker
				}
			})
			var got []string
			for range 2 {
				client := y.dialName(t, "db.test", port)
				fmt.Fprint(client, "x")
				client.CloseWrite()
				io.Copy(io.Discard, client)
			}
			y.server.Close()
			for _, r := range y.acts() {
				got = append(got, r.Decision+" "+r.Reason)
			}
			if !slices.Equal(got, c.want) || len(asker.asked) != c.asked {
				t.Errorf("%q after %d questions, not %q after %d", got, len(asker.asked), c.want, c.asked)
			}
			for _, q := range asker.asked {
				if q.Sandbox != "sandbox" || q.Host != "db.test" || q.Port != port || q.Rule != "db" || q.Description != "our data" || q.Why == "" || q.Digest == "" ||
					q.What != fmt.Sprintf("connect to db.test:%d", port) || q.Digest != asker.asked[0].Digest {
					t.Errorf("%+v", q)
				}
			}
			approvals := y.approvals()
			if len(approvals) != c.asked {
				t.Errorf("%d questions are in the log: %+v", len(approvals), approvals)
			}
			for i, r := range approvals {
				q := asker.asked[i]
				if r.Decision+" "+r.Reason != c.want[i] || r.Egress.Approval != q.ID || r.Egress.Digest != q.Digest || r.Rule != "db" || r.Policy == "" || y.acts()[i].Egress.Approval != q.ID {
					t.Errorf("recorded as %+v, %+v", r, r.Egress)
				}
			}
			if c.name == "once" && (approvals[0].Detail["by"] != "ada" || approvals[0].Detail["via"] != "terminal" || approvals[0].Detail["scope"] != "once") {
				t.Errorf("%v", approvals[0].Detail)
			}
		})
	}
}

// Looking a name up asks nobody: the stream does.
func TestLookupDoesNotAsk(t *testing.T) {
	y := newYard(t, newInternet(t, nil), parse(t, "action: ask, hosts: [ok.test]"))
	if _, ok := y.lookup(t, "ok.test"); !ok || len(y.acts()) != 0 {
		t.Errorf("%v, %+v", ok, y.acts())
	}
}

// Acts that wait behind a question are answered by a yes for the session, and a
// new version of the policy takes it back.
func TestAskTogether(t *testing.T) {
	answer := make(chan Answer)
	asker := &person{answer: func(ctx context.Context) (Answer, error) {
		select {
		case a := <-answer:
			return a, nil
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}}
	p := parse(t, "action: ask, hosts: [ok.test], protocol: http")
	y := newYard(t, newInternet(t, nil), p, func(o *Options) { o.Asker, o.AskTimeout = asker, patience })
	h, err := policy.ParseHost("ok.test")
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Request{Stage: policy.Head, To: policy.At(h, 80), Scheme: policy.HTTP, Method: "GET", Path: "/"}
	const many = 20
	verdicts := make(chan policy.Verdict, many)
	for range many {
		go func() { verdicts <- y.box.Begin(act.HTTP, act.Redirect, r.To).Judge(t.Context(), r).Verdict }()
	}
	answer <- Answer{Allow: true, Session: true}
	for range many {
		if v := <-verdicts; v != policy.Allow {
			t.Error(v)
		}
	}
	if len(asker.asked) != 1 {
		t.Errorf("%d questions", len(asker.asked))
	}
	y.box.Update(parse(t, "action: ask, hosts: [ok.test, other.test], protocol: http"), nil)
	go func() { answer <- Answer{} }()
	if d := y.box.Begin(act.HTTP, act.Redirect, r.To).Judge(t.Context(), r); d.Reason != ReasonApprovalDenied {
		t.Errorf("%+v", d)
	}
}

// A question does not outlive its sandbox.
func TestCloseWhileAsking(t *testing.T) {
	asking := make(chan bool)
	asker := &person{answer: func(ctx context.Context) (Answer, error) {
		close(asking)
		<-ctx.Done()
		return Answer{}, ctx.Err()
	}}
	y := newYard(t, newInternet(t, nil), parse(t, "action: ask, hosts: [db.test], protocol: tcp, ports: ['9']"), func(o *Options) { o.Asker, o.AskTimeout = asker, time.Hour })
	client := y.dialName(t, "db.test", 9)
	<-asking
	y.box.Close()
	isReset(t, client)
}

// judged judges a request as package web does.
func (y *yard) judged(t *testing.T, method, path, body string) policy.Decision {
	t.Helper()
	return y.judgedFor(t.Context(), t, method, path, body)
}

func (y *yard) judgedFor(ctx context.Context, t *testing.T, method, path, body string) policy.Decision {
	t.Helper()
	h, err := policy.ParseHost("ok.test")
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Request{Stage: policy.Head, To: policy.At(h, 80), Scheme: policy.HTTP, Method: method, Path: path, BodySize: int64(len(body))}
	a := y.box.Begin(act.HTTP, act.Redirect, r.To)
	a.Record().Method, a.Record().Path, a.Record().Scheme = method, path, "http"
	d := a.Judge(ctx, r)
	if d.Verdict == policy.Continue && d.Need == policy.Body {
		r.Stage, r.Body = policy.Body, []byte(body)
		d = a.Judge(ctx, r)
	}
	if err := a.Commit(); err != nil {
		t.Fatal(err)
	}
	return d
}

const asksWeb = "name: web, action: ask, hosts: [ok.test], protocol: http"

// V3: a question and its answer are for one method, path and body.
func TestAskedAgainForAnotherAct(t *testing.T) {
	asker := &person{answer: says(Answer{})}
	y := newYard(t, newInternet(t, nil), parse(t, asksWeb), func(o *Options) { o.Asker = asker })
	for _, c := range [][3]string{{"GET", "/", ""}, {"HEAD", "/", ""}, {"GET", "/x", ""}, {"POST", "/", "a=1"}, {"POST", "/", "a=2"}} {
		for range 2 { // the second time the no still holds
			if d := y.judged(t, c[0], c[1], c[2]); d.Reason != ReasonApprovalDenied {
				t.Errorf("%q: %+v", c, d)
			}
		}
	}
	if len(asker.asked) != 5 {
		t.Errorf("%d questions", len(asker.asked))
	}
	seen := map[string]bool{}
	for _, q := range asker.asked {
		if seen[q.Digest] {
			t.Errorf("one digest for two: %+v", q)
		}
		seen[q.Digest] = true
		if q.Scope == "" || q.ID == "" || q.Method == "POST" && q.Body != 3 {
			t.Errorf("%+v", q)
		}
	}
}

// V6: a sandbox that asks for ever new things wears nobody down, and a sandbox
// beside it is asked for as before.
func TestAskFlood(t *testing.T) {
	asker := &person{answer: func(ctx context.Context) (Answer, error) { <-ctx.Done(); return Answer{}, ctx.Err() }}
	y := newYard(t, newInternet(t, nil), parse(t, asksWeb), func(o *Options) { o.Asker, o.AskTimeout = asker, patience })
	ctx, cancel := context.WithCancel(t.Context())
	h, err := policy.ParseHost("ok.test")
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Request{Stage: policy.Head, To: policy.At(h, 80), Scheme: policy.HTTP, Method: "GET"}
	const many = 10_000
	reasons := make(chan string, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() { // without a record: those make whoever is denied so often wait
			r := r
			r.Path = fmt.Sprint("/", i)
			reasons <- y.box.Begin(act.HTTP, act.Redirect, r.To).Judge(ctx, r).Reason
		})
	}
	for range many - maxQuestions {
		if r := <-reasons; r != ReasonApprovalFlood {
			t.Fatal(r)
		}
	}
	other, err := y.server.Add(Sandbox{ID: "other", Policy: parse(t, asksWeb), Web: y.web})
	if err != nil {
		t.Fatal(err)
	}
	joined, refused := other.asks.join(other, other.version.Load(), Question{Digest: "d", Rule: "web"}, func() bool { return true })
	if refused != nil {
		t.Error(refused)
	} else {
		other.asks.leave(joined, false)
	}
	other.Close()
	cancel()
	all.Wait()
	if n := len(asker.asked); n != maxQuestions+1 {
		t.Errorf("%d questions", n)
	}
}

// After many questions without a yes none is asked for some time.
func TestAskInVain(t *testing.T) {
	asker := &person{answer: says(Answer{})}
	y := newYard(t, newInternet(t, nil), parse(t, asksWeb), func(o *Options) { o.Asker = asker })
	for i := range maxInVain + 5 {
		want := ReasonApprovalDenied
		if i >= maxInVain {
			want = ReasonApprovalFlood
		}
		if d := y.judged(t, "GET", fmt.Sprint("/", i), ""); d.Reason != want {
			t.Errorf("%d: %+v", i, d)
		}
	}
}

// Of two that wait for the same, a yes for one act lets one pass.
func TestOnceIsForOne(t *testing.T) {
	answer := make(chan Answer)
	asker := &person{answer: func(ctx context.Context) (Answer, error) {
		select {
		case a := <-answer:
			return a, nil
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}}
	y := newYard(t, newInternet(t, nil), parse(t, asksWeb), func(o *Options) { o.Asker, o.AskTimeout = asker, patience })
	got := make(chan string, 2)
	for range 2 {
		go func() { got <- y.judged(t, "GET", "/", "").Reason }()
	}
	answer <- Answer{Allow: true}
	if r := <-got; r != ReasonApproved {
		t.Error(r)
	}
	answer <- Answer{}
	if r := <-got; r != ReasonApprovalDenied {
		t.Error(r)
	}
}

// V9: what a yes could not open is not asked.
func TestNeverAsked(t *testing.T) {
	asker := &person{answer: says(Answer{Allow: true})}
	p, err := policy.Parse([]byte(`{"version": 1, "egress": {"rules": [
		{"name": "no", "action": "deny", "hosts": ["ok.test"], "paths": ["/secret"]},
		{"name": "web", "action": "ask", "hosts": ["ok.test"], "protocol": "http"},
		{"name": "raw", "action": "ask", "hosts": ["ok2.test"], "addresses": ["169.254.0.0/16", "198.18.0.0/15"], "protocol": "tcp", "ports": ["80"]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	y := newYard(t, newInternet(t, nil), p, func(o *Options) { o.Asker = asker })
	if d := y.judged(t, "GET", "/secret", ""); d.Verdict != policy.Deny || d.Rule.Name != "no" {
		t.Errorf("%+v", d)
	}
	for _, host := range []string{"169.254.169.254", "169.254.170.2", "198.18.0.1", "metadata.google.internal"} {
		h, err := policy.ParseHost(host)
		if err != nil {
			t.Fatal(err)
		}
		r := policy.Request{Stage: policy.Connect, To: policy.At(h, 80), Scheme: policy.TCP}
		if d := y.box.Begin(act.Stream, act.Redirect, r.To).Judge(t.Context(), r); d.Verdict != policy.Deny {
			t.Errorf("%s: %+v", host, d)
		}
	}
	if len(asker.asked) != 0 {
		t.Errorf("asked %+v", asker.asked)
	}
}

// Whoever asked and went away leaves no question behind.
func TestAskWithdrawn(t *testing.T) {
	asking, over := make(chan bool, 1), make(chan bool, 1)
	asker := &person{answer: func(ctx context.Context) (Answer, error) {
		asking <- true
		<-ctx.Done()
		over <- true
		return Answer{}, ctx.Err()
	}}
	y := newYard(t, newInternet(t, nil), parse(t, asksWeb), func(o *Options) { o.Asker, o.AskTimeout = asker, time.Hour })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asking; cancel() }()
	if d := y.judgedFor(ctx, t, "GET", "/", ""); d.Reason != ReasonApprovalWithdrawn {
		t.Errorf("%+v", d)
	}
	<-over
	go func() {
		<-asking
		y.box.Update(parse(t, "name: web, action: ask, hosts: [ok.test, more.test], protocol: http"), nil)
	}()
	if d := y.judged(t, "GET", "/", ""); d.Reason != ReasonApprovalWithdrawn {
		t.Errorf("%+v", d)
	}
	<-over
}

// A yes that cannot be recorded is none.
func TestUnrecordedApproval(t *testing.T) {
	var y *yard
	asker := &person{answer: func(context.Context) (Answer, error) {
		y.journal.mu.Lock()
		defer y.journal.mu.Unlock()
		y.journal.broken = true
		return Answer{Allow: true, Session: true}, nil
	}}
	y = newYard(t, newInternet(t, nil), parse(t, asksWeb), func(o *Options) { o.Asker = asker })
	h, _ := policy.ParseHost("ok.test")
	r := policy.Request{Stage: policy.Head, To: policy.At(h, 80), Scheme: policy.HTTP, Method: "GET", Path: "/"}
	for range 2 {
		if d := y.box.Begin(act.HTTP, act.Redirect, r.To).Judge(t.Context(), r); d.Reason != ReasonUnrecorded {
			t.Errorf("%+v", d)
		}
	}
}
