package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/dial"
	"github.com/bailey-sandbox/bailey/policy"
)

// Asker asks a person. It returns when there is an answer or ctx ends, which it
// does when the time for an answer is up or nobody waits for it any more. It is
// the one seam behind which questions may become durable.
type Asker interface {
	Ask(ctx context.Context, q Question) (Answer, error)
}

// Question is what a person is asked: all that is known of the act. What of it
// the sandbox chose, it chose freely.
type Question struct {
	ID      string   `json:"id"` // of the approval, for the log
	Session string   `json:"session,omitempty"`
	Sandbox string   `json:"sandbox"`
	What    string   `json:"what"` // "GET https://example.com/x"
	Host    string   `json:"host"`
	Port    uint16   `json:"port"`
	Method  string   `json:"method,omitempty"`
	Path    string   `json:"path,omitempty"`
	Query   []string `json:"query,omitempty"` // names
	// Body is the number of bytes of the body, -1 where it is not known before
	// the answer: a stream.
	Body        int64    `json:"body,omitempty"`
	Client      string   `json:"client,omitempty"` // address and port of who asks, inside
	Rule        string   `json:"rule"`
	Description string   `json:"description,omitempty"` // of the rule
	Scope       string   `json:"scope,omitempty"`       // all that the rule allows, in words
	Why         string   `json:"why"`
	Secrets     []string `json:"secrets,omitempty"` // names of those that the rule puts in
	// Digest names this act: see digest. Two acts with one digest are the same
	// question.
	Digest string `json:"digest"`
}

// Answer is a person's.
type Answer struct {
	Allow bool `json:"allow"`
	// Session lets the rule pass for the rest of the session, in place of this
	// act alone.
	Session bool   `json:"session,omitempty"`
	By      string `json:"by,omitempty"`
	Via     string `json:"via,omitempty"` // where it was given
}

// ErrNobody is an Asker's error when there is nobody to ask.
var ErrNobody = errors.New("nobody can be asked")

// The reasons that come of asking.
const (
	ReasonApproved            = "approved"
	ReasonApprovalDenied      = "approval_denied"
	ReasonApprovalTimeout     = "approval_timeout"
	ReasonApprovalUnavailable = "approval_unavailable"
	ReasonApprovalFlood       = "approval_flood"
	ReasonApprovalWithdrawn   = "approval_withdrawn"
)

// ask puts a decision that asks to a person and gives what came of it.
func (a *egress) ask(ctx context.Context, r policy.Request, d policy.Decision) policy.Decision {
	b := a.box
	deny := func(reason, why string) policy.Decision {
		return policy.Decision{Verdict: policy.Deny, Rule: d.Rule, Reason: reason, Why: why}
	}
	if !b.asked() {
		return deny(ReasonApprovalUnavailable, d.Why+", and nobody can be asked")
	}
	if addr, literal := r.To.Host().Addr(); literal {
		// What a yes could not open is no question.
		if c := dial.Classify(addr); c == dial.Metadata || c == dial.Gate || c != dial.Public && !d.Rule.AllowsAddress(addr) {
			return deny("address_internal", fmt.Sprintf("%s is not a public address (%s), and the rule names no internal range with it", addr, c))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.askTimeout)
	defer cancel()
	q := a.question(r, d)
	for {
		// A yes for the session may have come meanwhile.
		var now policy.Decision
		open, refused := b.asks.join(b, a.version, q, func() bool {
			r.State = b.state(a.version)
			now = policy.Decide(a.version.policy, r)
			return now.Verdict == policy.Ask
		})
		switch {
		case refused != nil:
			return deny(refused.reason, d.Why+refused.why)
		case open == nil:
			return now
		}
		a.mu.Lock()
		a.record.Approval = open.id
		a.mu.Unlock()
		select {
		case <-open.done:
		case <-ctx.Done():
			late := errors.Is(ctx.Err(), context.DeadlineExceeded)
			b.asks.leave(open, late)
			if late {
				return deny(ReasonApprovalTimeout, d.Why+", and no answer came in time")
			}
			return deny(ReasonApprovalWithdrawn, d.Why+", and whoever wanted it has gone")
		}
		switch o := b.asks.take(open); {
		case o == again:
		case o != "":
			return deny(o, d.Why+outcomes[o])
		case b.version.Load().digest() != a.version.digest():
			return deny(ReasonApprovalWithdrawn, d.Why+outcomes[ReasonApprovalWithdrawn])
		default:
			return policy.Decision{Verdict: policy.Allow, Rule: d.Rule, Reason: ReasonApproved, Why: "a person has allowed it"}
		}
	}
}

// asked tells that there is somebody who answers questions.
func (b *Box) asked() bool { return b.server.options.Asker != nil && !b.unattended }

// outcomes say how a question ended that was not answered with yes.
var outcomes = map[string]string{
	ReasonApprovalDenied:      ", and the answer was no",
	ReasonApprovalTimeout:     ", and no answer came in time",
	ReasonApprovalUnavailable: ", and nobody could be asked",
	ReasonApprovalWithdrawn:   ", and the policy has changed since then",
	ReasonUnrecorded:          ", and the answer could not be recorded",
}

// ReasonUnrecorded denies what a person has allowed when the log cannot be
// written.
const ReasonUnrecorded = "audit_unavailable"

// question says all that is known of the act.
func (a *egress) question(r policy.Request, d policy.Decision) Question {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := Question{
		Session: a.box.session, Sandbox: a.box.id, What: a.what(), Host: a.record.Host, Port: a.record.Port,
		Method: a.record.Method, Path: a.record.Path, Query: a.record.Query, Client: a.client,
		Rule: d.Rule.Name, Description: d.Rule.Description, Why: d.Why, Secrets: slices.Sorted(slices.Values(d.Rule.Secrets)),
	}
	if r.Stage == policy.Head {
		q.Body = r.BodySize // a stream, or nothing
	} else {
		q.Body = int64(len(r.Body))
	}
	for _, text := range a.version.policy.Describe() {
		if text.Rule == d.Rule.Name {
			q.Scope = text.Text
		}
	}
	q.Digest = digest(r, q.Secrets)
	a.record.Digest = q.Digest
	return q
}

// digest names an act: SHA-256 over the method, where it goes, its path, its
// query in sorted order, the hash of its body and the names of the secrets that
// would be put in, each with its length before it. Of a stream, and of a body that
// is one, what goes through is not known when a person is asked, and not in it.
func digest(r policy.Request, secrets []string) string {
	sum := sha256.New()
	body := "stream"
	if r.Stage == policy.Body || r.BodySize == 0 {
		of := sha256.Sum256(r.Body)
		body = hex.EncodeToString(of[:])
	}
	method := r.Method
	if r.WebSocket {
		method += " websocket"
	}
	query := url.Values{}
	maps.Copy(query, r.Query)
	for _, part := range append([]string{method, string(r.Scheme), r.To.String(), r.Path, query.Encode(), body}, secrets...) {
		io.WriteString(sum, strconv.Itoa(len(part))+":"+part)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// needsBody tells that a request has to be read whole before a person is asked,
// so that the answer is for its body as well. The body of a stream never is.
func needsBody(r policy.Request) bool {
	return r.Stage == policy.Head && r.BodySize != 0 && !r.WebSocket && !isStream(r)
}

func isStream(r policy.Request) bool {
	for _, v := range r.Header["Content-Type"] {
		if strings.HasPrefix(v, "application/grpc") {
			return true
		}
	}
	return false
}

var _ act.Act = (*egress)(nil)
