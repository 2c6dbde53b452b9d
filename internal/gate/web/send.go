package web

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// send commits the allowed request and sends it.
func (x *exchange) send(socket bool) *exchange {
	x.route = route{x.box, x.rule, x.to, x.tls}
	for try := 0; ; try++ {
		c, err := x.connect(try > 0, socket)
		if err != nil {
			return x.unreachable(err)
		}
		x.conn = c
		if !x.committed {
			if rec := x.a.Record(); rec.Address == "" {
				rec.Address = c.addr
			}
			if !x.commit() {
				c.Release()
				x.release()
				return x.unrecorded()
			}
			x.done = x.box.Hold(x.pr, x.forbid)
		}
		before := c.raw.written.Load()
		resp, err := c.RoundTrip(x.r)
		if err == nil {
			return x.receive(resp, socket)
		}
		if try == 0 && c.reused && x.r.Context().Err() == nil && x.again(c, before) {
			c.Close()
			continue
		}
		return x.unanswered(err)
	}
}

// commit writes the record of an allowed request.
func (x *exchange) commit() bool {
	x.committed = true
	x.allowed = x.a.Commit() == nil
	return x.allowed
}

// connect gives a connection to the server.
func (x *exchange) connect(fresh, socket bool) (*upstream, error) {
	if socket {
		return x.web.up.dial(x.r.Context(), x.route, x.a, []string{"http/1.1"})
	}
	return x.web.up.get(x.r.Context(), x.route, x.a, fresh)
}

// release gives the connection back unused.
func (x *exchange) release() {
	if x.conn != nil && !x.conn.h2 {
		x.web.up.put(x.route, x.conn)
	}
	x.conn = nil
}

// again tells whether a request that failed on a connection that had been used
// before may be sent once more: nothing of it was written, or it has no body
// and may be repeated (RFC 9110, 9.2.2).
func (x *exchange) again(c *upstream, before int64) bool {
	if x.up != nil && x.up.sent.Load() > 0 {
		return false
	}
	if !c.h2 && c.raw.written.Load() == before {
		return true
	}
	if x.up != nil {
		return false
	}
	switch x.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete, http.MethodTrace:
		return true
	}
	return false
}

// receive makes the server's answer ready for the sandbox.
func (x *exchange) receive(resp *http.Response, socket bool) *exchange {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if !socket || !accepted(x.r, resp) {
			resp.Body.Close()
			return x.fail(http.StatusBadGateway, "upstream_protocol", "the server changed to a protocol that nobody asked for")
		}
		x.socket = true
	} else if resp.StatusCode < 200 {
		resp.Body.Close()
		return x.fail(http.StatusBadGateway, "upstream_protocol", "the server's answer has no status")
	}
	stripAnswer(resp.Header)
	// Taking secrets out may make its length unknown.
	if !x.socket && resp.ContentLength >= 0 && resp.ContentLength <= coalesce {
		x.rest = &remainder{resp.Body, resp.ContentLength}
		resp.Body = x.rest
	}
	if x.secret != nil {
		if err := x.secret.Response(resp, func(n int) { x.scrubbed.Add(int64(n)) }); err != nil {
			resp.Body.Close()
			x.socket = false
			var refused *act.Refused
			if !errors.As(err, &refused) {
				refused = &act.Refused{Reason: "answer_unreadable", Why: "the answer has a form in which secrets cannot be looked for"}
			}
			return x.stopped(refused, http.StatusBadGateway)
		}
	}
	if x.up != nil && !x.socket {
		resp.Body = &answered{resp.Body, x.up}
	}
	x.answer = resp
	return x
}

// answered is the body of an answer that came while the request's was still on
// its way. Where the gate stopped that, the server may end the answer as if it
// were whole; it is not.
type answered struct {
	io.ReadCloser
	up *upload
}

func (b *answered) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		if e := b.up.failure(); refusalOf(e) != nil {
			err = e
		}
	}
	return n, err
}

// unreachable answers when there is no connection to the server.
func (x *exchange) unreachable(err error) *exchange {
	var refused *act.Refused
	if errors.As(err, &refused) && !x.committed {
		return x.refuse(refused.Reason, refused.Why, http.StatusForbidden)
	}
	if !x.committed && !x.commit() {
		return x.unrecorded()
	}
	return x.unanswered(err)
}

// unanswered answers when the server did not.
func (x *exchange) unanswered(err error) *exchange {
	if d := x.forbidden(); d != nil {
		x.answer, x.own = denied(*d, http.StatusForbidden, x.r), true
		x.finish(0, context.Canceled)
		return x
	}
	bodyErr := x.up.failure()
	var refused *act.Refused
	switch {
	case refusalOf(bodyErr) != nil:
		return x.stopped(bodyErr, http.StatusForbidden)
	case errors.As(err, &refused):
		return x.stopped(refused, http.StatusForbidden)
	case bodyErr != nil:
		return x.fail(http.StatusBadRequest, "request_malformed", "the request's body ended early or is malformed")
	}
	status, code, why := explain(err)
	return x.fail(status, code, why)
}

// stopped answers a request that was refused when it was on its way already:
// its record stands, and its outcome is a denial.
func (x *exchange) stopped(refused error, status int) *exchange {
	x.finish(0, refused)
	x.answer, x.own = denied(x.a.Denial(), status, x.r), true
	return x
}

// withdraw puts a denial in the place of an answer that policy forbids now.
func (x *exchange) withdraw() {
	x.answer.Body.Close()
	x.socket = false
	x.unanswered(context.Canceled)
}

// fail answers with an error of the gate's, and ends the exchange.
func (x *exchange) fail(status int, code, why string) *exchange {
	x.answer, x.own = failed(status, code, x.what(), why, x.r), true
	x.finish(0, coded(code))
	return x
}

// refusalOf gives the refusal that an error is: what the gate ended for a reason
// of its own, and not what failed.
func refusalOf(err error) *act.Refused {
	var refused *act.Refused
	var c *closing
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, errLimit):
		return &act.Refused{Reason: policy.ReasonLimitUpload, Why: "a limit of the rule is passed"}
	case errors.As(err, &c) && c.code == closePolicy:
		return &act.Refused{Reason: c.reason, Why: c.why}
	}
	return nil
}

// coded is an error that is a stable code.
type coded string

func (c coded) Error() string { return string(c) }

// codeOf gives the code for an outcome.
func codeOf(err error) string {
	var c coded
	var closed *closing
	refused := refusalOf(err)
	switch {
	case refused != nil:
		return refused.Reason
	case errors.As(err, &c):
		return string(c)
	case errors.As(err, &closed):
		return closed.reason
	case errors.Is(err, errClient):
		return "client_gone"
	}
	_, code, _ := explain(err)
	return code
}

// errClient is wrapped around what went wrong with the sandbox's connection.
var errClient = errors.New("the sandbox's connection failed")

// explain says why there is no answer. The text has nothing that a peer wrote.
func explain(err error) (status int, code, why string) {
	var (
		unreachable *act.Unreachable
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		invalid     x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &unreachable):
		if unreachable.Code == "connect_timeout" {
			return 504, unreachable.Code, unreachable.Why
		}
		return 502, unreachable.Code, unreachable.Why
	case errors.As(err, &authority):
		return 502, "upstream_certificate", "the server's certificate is signed by an authority that the gate does not know"
	case errors.As(err, &host):
		return 502, "upstream_certificate", "the server's certificate is for another name"
	case errors.As(err, &invalid):
		if invalid.Reason == x509.Expired {
			return 502, "upstream_certificate", "the server's certificate has expired or is not valid yet"
		}
		return 502, "upstream_certificate", "the server's certificate is not valid"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return 504, "upstream_timeout", "the server did not answer in time"
	case errors.Is(err, errHandshake):
		return 502, "upstream_tls", "TLS with the server failed"
	case errors.Is(err, context.Canceled):
		return 502, "canceled", "the request was given up"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 502, "upstream_closed", "the server closed the connection without an answer"
	case strings.Contains(err.Error(), "malformed HTTP"):
		return 502, "upstream_protocol", "the server's answer is malformed"
	}
	return 502, "upstream_failed", "the server gave no proper answer"
}
