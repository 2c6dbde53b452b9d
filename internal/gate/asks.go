package gate

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
)

// Bounds of the questions of one sandbox, so that it cannot wear a person down.
const (
	// maxQuestions may be open at once; further ones are denied.
	maxQuestions = 20
	// maxInVain may follow one another without a yes. Then none is asked for
	// restAfter.
	maxInVain = 20
	restAfter = 10 * time.Minute
	// coolDown is how long a no also answers the same question asked again.
	coolDown = time.Minute
	// maxCooling bounds the noes that are remembered.
	maxCooling = 1024
)

// asks are the questions of a box.
type asks struct {
	mu     sync.Mutex
	open   map[string]*asking // by digest
	denied map[string]noted   // by digest
	inVain int
	rest   time.Time // until then nothing is asked
}

// noted is a no that cools down.
type noted struct {
	id   string
	till time.Time
}

// asking is one question.
type asking struct {
	id      string
	digest  string
	rule    string
	version *version
	cancel  context.CancelFunc
	waiting int
	done    chan struct{} // closed when outcome is set
	outcome string        // "" is a yes, again; otherwise a reason
	session bool
	used    bool // a yes for one act has been taken
}

// again is the outcome of a question that another one has answered.
const again = "again"

// refusal is why there is no question.
type refusal struct{ reason, why string }

// join waits at the question of a digest, which is asked if it is not. needed is
// looked at while no answer can come in: a yes for the session makes a question
// needless, and then there is none.
func (s *asks) join(b *Box, v *version, q Question, needed func() bool) (*asking, *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !needed() {
		return nil, nil
	}
	now := time.Now()
	if no, ok := s.denied[q.Digest]; ok && now.Before(no.till) {
		return nil, &refusal{ReasonApprovalDenied, ", and the answer was no a moment ago (" + no.id + ")"}
	}
	if o := s.open[q.Digest]; o != nil && o.version == v {
		o.waiting++
		return o, nil
	}
	switch {
	case now.Before(s.rest):
		return nil, &refusal{ReasonApprovalFlood, ", and too many questions in a row got no yes: none is asked for some minutes"}
	case len(s.open) >= maxQuestions:
		return nil, &refusal{ReasonApprovalFlood, ", and too many questions are open"}
	}
	ctx, cancel := context.WithTimeout(b.ctx, b.askTimeout)
	q.ID = newID()
	o := &asking{id: q.ID, digest: q.Digest, rule: q.Rule, version: v, cancel: cancel, waiting: 1, done: make(chan struct{})}
	if s.open == nil {
		s.open, s.denied = map[string]*asking{}, map[string]noted{}
	}
	s.open[q.Digest] = o
	b.work.Go(func() {
		defer cancel()
		a, err := b.server.options.Asker.Ask(ctx, q)
		s.answered(b, o, q, a, err, ctx.Err())
	})
	return o, nil
}

// newID gives the id of a question: base32 of RFC 4648 in lower case.
func newID() string { return strings.ToLower(rand.Text()[:10]) }

// leave is for who waits no longer, since it is late or for another reason. A
// question that nobody waits for is withdrawn.
func (s *asks) leave(o *asking, late bool) {
	s.mu.Lock()
	if o.waiting--; o.waiting > 0 {
		s.mu.Unlock()
		return
	}
	if late && o.outcome == "" {
		o.outcome = ReasonApprovalTimeout
	}
	if s.open[o.digest] == o {
		delete(s.open, o.digest) // nobody else joins it
	}
	s.mu.Unlock()
	o.cancel()
	<-o.done // its record comes before that of the act
}

// take gives what an answer is to one of those who waited for it.
func (s *asks) take(o *asking) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.outcome == "" && !o.session {
		if o.used {
			return again // it was for one act, and another one was faster
		}
		o.used = true
	}
	return o.outcome
}

// answered records what came of a question, and tells those who wait.
func (s *asks) answered(b *Box, o *asking, q Question, a Answer, err, over error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[o.digest] == o {
		delete(s.open, o.digest)
	}
	if o.outcome == "" { // it was not ended by leave, enough or forget
		switch {
		case err != nil && over == context.DeadlineExceeded:
			o.outcome = ReasonApprovalTimeout
		case err != nil && over != nil:
			o.outcome = ReasonApprovalWithdrawn
		case err != nil:
			o.outcome = ReasonApprovalUnavailable
		case !a.Allow:
			o.outcome = ReasonApprovalDenied
		}
	}
	if s.record(b, o, q, a) != nil && o.outcome == "" {
		o.outcome = ReasonUnrecorded
	}
	switch o.outcome {
	case "":
		s.inVain = 0
		if o.session = a.Session; o.session {
			b.grant(o.version, o.rule)
			s.enough(o)
		}
	case ReasonApprovalDenied:
		if len(s.denied) >= maxCooling {
			clear(s.denied)
		}
		s.denied[o.digest] = noted{o.id, time.Now().Add(coolDown)}
		fallthrough
	case ReasonApprovalTimeout:
		if s.inVain++; s.inVain >= maxInVain {
			s.inVain, s.rest = 0, time.Now().Add(restAfter)
		}
	}
	close(o.done)
}

// enough ends other questions of a rule that has been granted.
func (s *asks) enough(by *asking) {
	for _, o := range s.open {
		if o.rule == by.rule && o.version == by.version && o.outcome == "" {
			o.outcome = again
			o.cancel()
		}
	}
}

// forget ends what was asked under a policy that is no longer in force, and takes
// back what was answered.
func (s *asks) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.open {
		if o.outcome == "" {
			o.outcome = ReasonApprovalWithdrawn
			o.cancel()
		}
	}
	clear(s.open)
	clear(s.denied)
	s.inVain, s.rest = 0, time.Time{}
}

// record writes a question and what came of it to the log.
func (s *asks) record(b *Box, o *asking, q Question, a Answer) error {
	r := &audit.Record{
		Kind: audit.KindApproval, Session: b.session, Sandbox: b.id, Policy: o.version.digest(), Decision: "deny", Reason: o.outcome, Rule: o.rule,
		Egress: &audit.Egress{Host: q.Host, Port: q.Port, Method: q.Method, Path: q.Path, Query: q.Query, Secrets: q.Secrets, Approval: q.ID, Digest: q.Digest},
		Detail: map[string]string{},
	}
	switch o.outcome {
	case "":
		r.Decision, r.Reason, r.Detail["scope"] = "allow", ReasonApproved, "once"
		if a.Session {
			r.Detail["scope"] = "session"
		}
	case again:
		r.Reason = ReasonApprovalWithdrawn
	}
	if a.By != "" {
		r.Detail["by"], r.Detail["via"] = a.By, a.Via
	}
	return b.server.options.Audit.Append(r)
}
