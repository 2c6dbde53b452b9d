package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// maxJudged bounds a body that a rule looks into. It is held in memory until
// the rule has decided.
const maxJudged = 1 << 20

// exchange is one request and its answer.
type exchange struct {
	*stream
	r      *http.Request // what is sent on
	a      act.Act
	to     policy.Authority // of this request
	began  time.Time
	cancel context.CancelFunc
	pr     policy.Request
	rule   *policy.Rule
	up     *upload // nil without a body
	secret act.Secrets
	conn   *upstream
	route  route

	committed bool   // the record is written
	allowed   bool   // and says that it was allowed
	done      func() // ends the hold
	scrubbed  atomic.Int64

	mu       sync.Mutex
	cut      func()      // ends the writing of the answer
	forbids  *act.Denial // set when a new policy version forbids it
	finished bool

	answer *http.Response
	own    bool       // the answer is the gate's, not a server's
	rest   *remainder // what is still to come of a short answer; nil of others
	socket bool       // a WebSocket has been opened
	broken bool       // the gate had a fault; the connection must end
}

// upload is a request's body on its way: counted, and ended when a limit is
// passed.
type upload struct {
	io.ReadCloser
	a    act.Act
	sent atomic.Int64
	err  atomic.Pointer[error]
}

// errLimit ends a body that passed a limit of its rule.
var errLimit = errors.New("a limit of the rule is passed")

// Read implements io.Reader. It runs in a goroutine of the transport's, which
// knows nothing of faults.
func (u *upload) Read(p []byte) (n int, err error) {
	defer func() {
		if act.Caught(recover()) {
			n, err = 0, act.Fault
		}
		if err != nil && err != io.EOF {
			u.err.CompareAndSwap(nil, &err)
		}
	}()
	n, err = u.ReadCloser.Read(p)
	if n > 0 {
		u.sent.Add(int64(n))
		if !u.a.Count(policy.Usage{Upload: int64(n)}) {
			return 0, errLimit
		}
	}
	return n, err
}

// failure gives what the body ended with, nil if nothing.
func (u *upload) failure() error {
	if u == nil {
		return nil
	}
	if e := u.err.Load(); e != nil {
		return *e
	}
	return nil
}

// exchange takes a request from its head to the beginning of its answer. It
// always gives one with an answer. r.Host and r.RequestURI are as they were
// written. r is the exchange's from here on.
func (s *stream) exchange(r *http.Request, upgrade string, hasHost bool, cancel context.CancelFunc) (x *exchange) {
	x = &exchange{stream: s, r: r, to: s.to, began: time.Now(), cancel: cancel}
	defer func() {
		if act.Caught(recover()) {
			x.fault()
		}
	}()
	kind, socket, e := kindOf(r, upgrade)
	path := ""
	if e == nil {
		path, e = x.locate(hasHost)
	}
	x.a = s.box.Begin(kind, s.via, x.to)
	x.secret = s.box.Secrets()
	rec := x.a.Record()
	x.describe(rec, path)
	if e != nil {
		return x.refuse(e.reason, e.why, e.status)
	}
	trailers := strip(r.Header)
	x.pr = policy.Request{
		Stage: policy.Head, To: x.to, Scheme: s.scheme(), Method: r.Method, Path: path,
		Header: r.Header, WebSocket: socket, BodySize: r.ContentLength,
	}
	if r.URL.RawQuery != "" {
		x.pr.Query = r.URL.Query()
	}
	d := x.a.Judge(r.Context(), x.pr)
	if d.Verdict == policy.Continue && d.Need == policy.Body {
		if refused := x.readBody(); refused != nil {
			return refused
		}
		d = x.a.Judge(r.Context(), x.pr)
		x.pr.Body = nil
	}
	if d.Verdict != policy.Allow {
		return x.denied(d)
	}
	x.rule = d.Rule
	if socket && x.rule != nil && !x.rule.WebSocket {
		return x.refuse("websocket", "the rule allows no WebSocket", http.StatusForbidden)
	}
	if refused := x.prepare(trailers, socket); refused != nil {
		return refused
	}
	return x.send(socket)
}

// fault ends the exchange for a fault of the gate's, which may have left it in
// any state.
func (x *exchange) fault() {
	x.socket, x.broken = false, true
	if x.a == nil {
		x.a = x.box.Begin(act.HTTP, x.via, x.to)
		x.stream.describe(x.a.Record())
	}
	if x.committed {
		x.stopped(act.Fault, http.StatusInternalServerError)
	} else {
		x.refuse(act.Fault.Reason, act.Fault.Why, http.StatusInternalServerError)
	}
}

// describe puts what is known of the request into its record.
func (x *exchange) describe(rec *audit.Egress, path string) {
	x.stream.describe(rec)
	rec.Host, rec.Port = x.to.Host().String(), x.to.Port()
	rec.Method = x.r.Method
	if !validMethod(rec.Method) {
		rec.Method = ""
	}
	if x.secret != nil {
		path = x.secret.Clean(path)
	}
	rec.Path = path
	if x.r.URL != nil && x.r.URL.RawQuery != "" {
		rec.Query = queryNames(x.r.URL, x.secret)
	}
}

// readBody reads the whole body, for a rule that looks into it.
func (x *exchange) readBody() *exchange {
	var whole []byte
	if x.r.Body != nil {
		if x.r.ContentLength > maxJudged {
			return x.refuse("body_too_large", "the rule looks into bodies, and this one is longer than 1 MiB", http.StatusForbidden)
		}
		room := x.r.ContentLength
		if room < 0 {
			room = maxJudged
		}
		if err := act.Hold(x.r.Context(), room); err != nil {
			return x.full(err)
		}
		var err error
		whole, err = io.ReadAll(io.LimitReader(x.r.Body, maxJudged+1))
		if err != nil {
			return x.refuse("request_malformed", "its body ended early or is malformed", http.StatusBadRequest)
		}
		if len(whole) > maxJudged {
			return x.refuse("body_too_large", "the rule looks into bodies, and this one is longer than 1 MiB", http.StatusForbidden)
		}
		x.r.Body = io.NopCloser(bytes.NewReader(whole))
		x.r.ContentLength = int64(len(whole))
		if len(whole) == 0 {
			x.r.Body = http.NoBody
		}
	}
	x.pr.Stage, x.pr.Body, x.pr.BodySize = policy.Body, whole, int64(len(whole))
	return nil
}

// full refuses what there is no memory for.
func (x *exchange) full(err error) *exchange {
	if refused := refusalOf(err); refused != nil {
		return x.refuse(refused.Reason, refused.Why, http.StatusServiceUnavailable)
	}
	return x.refuse("canceled", "the request was given up", http.StatusForbidden)
}

// prepare makes the allowed request ready to be sent: secrets, limits, fields.
func (x *exchange) prepare(trailers, socket bool) *exchange {
	r := x.r
	r.RequestURI = ""
	r.Trailer = nil
	r.Close = false
	// What Go would add by itself the server would take for the sandbox's.
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = []string{""}
	}
	if trailers {
		r.Header["Te"] = []string{"trailers"}
	}
	if x.secret != nil {
		used, err := x.secret.Request(r.Context(), r, x.pr, x.rule)
		if err != nil {
			var refused *act.Refused
			if errors.As(err, &refused) {
				return x.refuse(refused.Reason, refused.Why, http.StatusForbidden)
			}
			return x.refuse("secret_failed", "a secret could not be put in", http.StatusForbidden)
		}
		x.a.Record().Secrets = used
	}
	if socket {
		x.openSocket()
	}
	use := policy.Usage{Requests: 1}
	if x.rule != nil && x.rule.Limits.Leak > 0 {
		use.Leak = x.rule.Leak(x.pr)
	}
	if !x.a.Count(use) {
		reason := policy.ReasonLimitRequests
		if use.Leak > 0 && x.rule.Limits.Requests == 0 {
			reason = policy.ReasonLimitLeak
		}
		return x.refuse(reason, "a limit of the rule is passed", http.StatusForbidden)
	}
	if r.Body == nil || r.Body == http.NoBody {
		r.Body, r.ContentLength = nil, 0
	} else {
		x.up = &upload{ReadCloser: r.Body, a: x.a}
		r.Body = x.up
	}
	return nil
}

// refuse ends the exchange for a reason of the gate's own.
func (x *exchange) refuse(reason, why string, status int) *exchange {
	x.a.Refuse(reason, why)
	return x.refused(status)
}

// denied ends the exchange as policy says.
func (x *exchange) denied(d policy.Decision) *exchange {
	if d.Verdict != policy.Deny {
		// Ask was not answered, or Continue needs what there is not: no reason to
		// let it pass.
		return x.refuse("undecided", "policy came to no decision", http.StatusForbidden)
	}
	return x.refused(http.StatusForbidden)
}

func (x *exchange) refused(status int) *exchange {
	if !x.committed {
		x.committed = true
		if x.a.Commit() != nil {
			return x.unrecorded()
		}
	}
	x.answer, x.own = denied(x.a.Denial(), status, x.r), true
	return x
}

// unrecorded answers a request that could not be written to the audit log.
func (x *exchange) unrecorded() *exchange {
	x.answer = failed(http.StatusServiceUnavailable, "audit_unavailable", x.what(),
		"the audit log cannot be written, so nothing may pass", x.r)
	x.own = true
	return x
}

// what names the request in an answer. The query is left out, and secrets are.
func (x *exchange) what() string {
	rec := x.a.Record()
	return rec.Method + " " + rec.Scheme + "://" + x.to.String() + rec.Path
}

// forbid is called when a new policy version forbids what is under way.
func (x *exchange) forbid(d act.Denial) {
	x.mu.Lock()
	if x.finished {
		x.mu.Unlock()
		return
	}
	x.forbids = &d
	cut := x.cut
	x.mu.Unlock()
	x.cancel()
	if cut != nil {
		cut()
	}
}

// writing says how the writing of the answer can be ended from outside. It
// gives false when the answer must not be written any more.
func (x *exchange) writing(cut func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cut = cut
	return x.own || x.forbids == nil
}

func (x *exchange) forbidden() *act.Denial {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.forbids
}

// finish ends the exchange after its answer was written, or could not be.
// Later calls do nothing.
func (x *exchange) finish(received int64, err error) {
	x.mu.Lock()
	again := x.finished
	x.finished = true
	forbids := x.forbids
	x.mu.Unlock()
	if again {
		return
	}
	if x.done != nil {
		x.done()
	}
	if x.conn != nil && !x.conn.h2 {
		if err != nil || x.socket {
			x.conn.Close()
		} else {
			x.web.up.put(x.route, x.conn)
		}
	}
	if !x.allowed {
		return // a denial has no outcome
	}
	// A body that goes on while the answer comes is what ended the answer.
	if e := x.up.failure(); err != nil && refusalOf(e) != nil {
		err = e
	}
	if refused := refusalOf(err); refused != nil && forbids == nil {
		x.a.Refuse(refused.Reason, refused.Why)
	}
	o := audit.Outcome{Received: received, Duration: time.Since(x.began), Scrubbed: int(x.scrubbed.Load())}
	if x.up != nil {
		o.Sent = x.up.sent.Load()
	}
	if x.answer != nil && !x.own {
		o.Status = x.answer.StatusCode
	}
	switch {
	case forbids != nil:
		o.Error = forbids.Reason
	case err != nil:
		o.Error = codeOf(err)
	}
	x.a.End(o)
}
