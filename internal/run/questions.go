package run

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/approval"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// questions puts what the rules of a sandbox ask before a person: on the terminal
// of the run, if there is one, and for `bailey approvals` in any case. The first
// answer counts.
type questions struct {
	home     string
	attended bool // there will be a relay with a terminal
	notice   func(string)

	mu     sync.Mutex
	desk   *approval.Desk
	closed bool
	pid    int // of the sandbox's first process; 0 while there is none
	relay  *terminal.Relay
	ready  chan struct{} // closed when relay is set
}

func newQuestions(home string, attended bool, notice func(string)) *questions {
	return &questions{home: home, attended: attended, notice: notice, ready: make(chan struct{})}
}

// started says which sandbox it is whose rules ask.
func (s *questions) started(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pid = pid
}

// join says on which terminal to ask.
func (s *questions) join(r *terminal.Relay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.relay = r
	close(s.ready)
}

// open gives the desk, which is there from the first question on.
func (s *questions) open() (*approval.Desk, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the sandbox has ended")
	}
	if s.desk == nil {
		d, err := approval.Open(s.home)
		if err != nil {
			return nil, err
		}
		s.desk = d
	}
	return s.desk, nil
}

// close takes back what is open.
func (s *questions) close() {
	s.mu.Lock()
	s.closed = true
	d := s.desk
	s.desk = nil
	s.mu.Unlock()
	d.Close()
}

// ask asks, and waits for the answer.
func (s *questions) ask(ctx context.Context, q control.Question) control.Answer {
	d, err := s.open()
	var p *approval.Pending
	if err == nil {
		s.mu.Lock()
		pid := s.pid
		s.mu.Unlock()
		p, err = d.Put(approval.Question{
			ID: q.ID, Sandbox: q.Sandbox, What: q.What, Host: q.Host, Port: q.Port, Method: q.Method, Path: q.Path, Query: q.Query, Body: q.Body,
			Program: ProgramOf(pid, q.Client), Rule: q.Rule, Description: q.Description, Reason: q.Reason, Secrets: q.Secrets, Session: q.Scope,
			Digest: q.Digest, Until: q.Until,
		})
	}
	if err != nil {
		s.notice("a question could not be asked, and what it is about is denied: " + terminal.Printable(err.Error()))
		return control.Answer{}
	}
	if s.attended {
		go s.atTerminal(p)
	}
	a := p.Wait(ctx)
	out := control.Answer{By: a.By, Via: a.Via}
	switch a.Verdict {
	case approval.Once:
		out.Verdict = control.Once
	case approval.Session:
		out.Verdict = control.ForSession
	case approval.No:
		out.Verdict = control.No
	}
	return out
}

// atTerminal asks on the terminal until there is an answer from anywhere.
func (s *questions) atTerminal(p *approval.Pending) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-p.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	select {
	case <-s.ready:
	case <-ctx.Done():
		return
	}
	err := s.relay.Ask(ctx, asked(p.Question), "bailey: once, session or no? ", func(line string) (string, bool) {
		v, ok := verdictOf(line)
		if !ok {
			return "bailey: type one of the words; session is to be written out\n", false
		}
		p.Answer(v, "terminal")
		return "", true
	})
	if errors.Is(err, terminal.ErrInterrupted) {
		p.Answer(approval.No, "terminal")
	}
}

// verdictOf understands an answer. What permits most has to be written out.
func verdictOf(line string) (approval.Verdict, bool) {
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "o", "once":
		return approval.Once, true
	case "session":
		return approval.Session, true
	case "n", "no":
		return approval.No, true
	}
	return "", false
}

// maxShown bounds each part of a question, in characters.
const maxShown = 300

// QuestionText puts a question into lines for a person. All that the sandbox
// chose is escaped.
func QuestionText(q approval.Question) string {
	var b strings.Builder
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-8s %s\n", name, terminal.Shorten(text, maxShown))
		}
	}
	line("what", q.What)
	line("host", q.Host)
	if q.Port != 0 {
		line("port", strconv.Itoa(q.Port))
	}
	line("method", q.Method)
	line("path", q.Path)
	line("query", strings.Join(q.Query, ", "))
	switch {
	case q.Body > 0:
		line("body", fmt.Sprintf("%d bytes, SHA-256 in the digest", q.Body))
	case q.Body < 0:
		line("body", "a stream, not known before it is let through")
	}
	line("program", q.Program)
	line("sandbox", q.Sandbox)
	line("rule", q.Rule)
	line("", q.Description)
	line("because", q.Reason)
	line("secrets", strings.Join(q.Secrets, ", "))
	b.WriteString("  once     lets this one pass\n")
	fmt.Fprintf(&b, "  session  lets all of this pass until the run ends: %s\n", terminal.Shorten(q.Session, maxShown))
	b.WriteString("  no       denies it\n")
	return b.String()
}

// asked is a question as the terminal shows it.
func asked(q approval.Question) string {
	wait := ""
	if left := time.Until(q.Until).Round(time.Second); left > 0 {
		wait = fmt.Sprintf(" It waits %s, then it is denied.", left)
	}
	return fmt.Sprintf("bailey: the sandbox asks (%s).%s\n%s", q.ID, wait, QuestionText(q))
}
