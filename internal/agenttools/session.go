package agenttools

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
)

// Bounds of a shell's answers.
const (
	textMost    = 30_000           // bytes of each stream in an answer
	waitDefault = 2 * time.Minute  // for a command whose call names no time
	waitMost    = 60 * time.Minute // that a call may name
	endWithin   = 10 * time.Second // for what ends a shell
)

// session is a shell that lives between calls: its folder, variables and functions
// stay. Its commands are ended by a line with a word that nobody can know before.
type session struct {
	x        *client.Exec
	stopRead context.CancelFunc
	events   chan api.OutputEvent
	over     chan struct{} // closed when it has ended
}

// begin starts a shell: bash, or sh where there is none.
func begin(ctx context.Context, box *client.Sandbox) (*session, error) {
	const shell = "if command -v bash >/dev/null 2>&1; then exec bash --noprofile --norc; fi; exec sh"
	x, err := box.Start(ctx, api.ExecSpec{Args: []string{shell}, Shell: true, Stdin: true})
	if err != nil {
		return nil, err
	}
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &session{x: x, stopRead: stop, events: make(chan api.OutputEvent), over: make(chan struct{})}
	go func() {
		defer close(s.over)
		_, _ = x.Output(reading, nil, func(e api.OutputEvent) error { // its end is told by over
			select {
			case s.events <- e:
				return nil
			case <-reading.Done():
				return reading.Err()
			}
		})
	}()
	return s, nil
}

// end ends the shell and all that it has started.
func (s *session) end() {
	s.stopRead()
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	_ = s.x.Signal(ctx, "KILL") // it may have ended by itself
	<-s.over
}

// outcome is what a command did in a session.
type outcome struct {
	stdout, stderr clip
	code           string // "" where the shell did not live to tell it
	late, dead     bool
}

// do runs a command line and waits for its end, for at most d.
func (s *session) do(ctx context.Context, line string, d time.Duration) (out outcome, err error) {
	word := rand.Text()
	// The line is a quoted word of eval: what is open at its end, as a quote or a
	// here-document, is an error of the line and does not swallow what follows.
	script := fmt.Sprintf("eval %s </dev/null\nprintf '\\n%s %%d\\n' \"$?\"; printf '\\n%s\\n' >&2\n", quoted(line), word, word)
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	// Written beside the reading: a shell that has ended reads nothing.
	written := make(chan error, 1)
	go func() { written <- s.x.Write(ctx, strings.NewReader(script), false) }()
	marks := map[api.Stream]*marked{api.Stdout: {word: "\n" + word + " ", to: &out.stdout}, api.Stderr: {word: "\n" + word + "\n", to: &out.stderr}}
	for !marks[api.Stdout].done() || !marks[api.Stderr].found {
		select {
		case e := <-s.events:
			marks[e.Stream].Write(e.Data)
		case failed := <-written:
			written = nil
			code := bailey.CodeOf(failed)
			if failed != nil && ctx.Err() == nil && code != bailey.CodeConflict && code != bailey.CodeNotFound {
				return out, failed
			}
			// Otherwise it has ended, which over tells after all of its output.
		case <-s.over:
			out.dead = true
		case <-ctx.Done():
			out.late = true
		}
		if out.dead || out.late {
			break
		}
	}
	for _, m := range marks {
		m.flush()
	}
	out.code = marks[api.Stdout].tail()
	return out, nil
}

// quoted makes one word for a shell of any text.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// marked passes on what comes before a mark, which may arrive in pieces.
type marked struct {
	word  string
	to    io.Writer
	held  []byte // what may be the mark's beginning, or what follows it
	found bool
}

func (m *marked) Write(p []byte) {
	m.held = append(m.held, p...)
	if m.found {
		return
	}
	if i := strings.Index(string(m.held), m.word); i >= 0 {
		m.to.Write(m.held[:i])
		m.held, m.found = append([]byte{}, m.held[i+len(m.word):]...), true
		return
	}
	if n := len(m.held) - len(m.word) + 1; n > 0 {
		m.to.Write(m.held[:n])
		m.held = append([]byte{}, m.held[n:]...)
	}
}

// flush passes on what is held where no mark came.
func (m *marked) flush() {
	if !m.found {
		m.to.Write(m.held)
		m.held = nil
	}
}

// done says that the mark and the whole line after it are there.
func (m *marked) done() bool { return m.found && strings.Contains(string(m.held), "\n") }

// tail is the line after the mark.
func (m *marked) tail() string {
	line, _, _ := strings.Cut(string(m.held), "\n")
	return line
}

// clip keeps the beginning and the end of what is written to it, in bounds.
type clip struct {
	most       int // bytes that are kept; 0 is textMost
	head, rest []byte
	all        int64
}

// half is how much is kept of each side.
func (c *clip) half() int {
	if c.most == 0 {
		return textMost / 2
	}
	return (c.most + 1) / 2
}

func (c *clip) Write(p []byte) (int, error) {
	n, half := len(p), c.half()
	c.all += int64(n)
	if room := half - len(c.head); room > 0 {
		k := min(room, len(p))
		c.head, p = append(c.head, p[:k]...), p[k:]
	}
	c.rest = append(c.rest, p...)
	if len(c.rest) > 2*half {
		c.rest = append([]byte{}, c.rest[len(c.rest)-half:]...)
	}
	return n, nil
}

// text is what is kept, with a line that says what is missing and how it is read.
func (c *clip) text(how string) string {
	rest, half := c.rest, c.half()
	if int64(len(c.head)+len(rest)) == c.all && len(rest) <= half {
		return valid(string(c.head) + string(rest))
	}
	if len(rest) > half {
		rest = rest[len(rest)-half:]
	}
	return fmt.Sprintf("%s\n[%d bytes are left out here; %s]\n%s", valid(string(c.head)), c.all-int64(len(c.head)+len(rest)), how, valid(string(rest)))
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// within reads a number of milliseconds as the time for a call.
func within(ms int64) (time.Duration, error) {
	switch d := time.Duration(ms) * time.Millisecond; {
	case ms == 0:
		return waitDefault, nil
	case ms < 0 || ms > waitMost.Milliseconds():
		return 0, bailey.Errorf(bailey.CodeUsage, "read the time", fmt.Sprintf("use 1 to %d ms", waitMost.Milliseconds()), "%d is out of range", ms)
	default:
		return d, nil
	}
}
