package gate

import (
	"fmt"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/dial"
	"github.com/bailey-sandbox/bailey/internal/gate/names"
	"github.com/bailey-sandbox/bailey/policy"
)

// Appender is the audit log. Append gives the record its Seq and Time and
// returns when the kernel has it. If it fails, nothing passes. Later appends what
// nobody waits for.
type Appender interface {
	Append(*audit.Record) error
	Later(*audit.Record)
}

// Options are a server's. Audit is required.
type Options struct {
	Audit Appender
	// Dialer connects to names; nil is one that uses the host's resolver.
	Dialer act.Dialer
	// Asker asks a person; without one a rule that asks denies, with reason
	// approval_unavailable.
	Asker Asker
	// AskTimeout bounds the wait for an answer; 0 is 2 minutes. Then the act is
	// denied with reason approval_timeout.
	AskTimeout time.Duration
	// Denied is told of each denial, one at a time for each sandbox, off the path
	// of the act. What it is too slow for is counted by Box.Dropped, not kept: the
	// audit log has it.
	Denied func(act.Denial)
	// Changed is told that a Box.State is another than before: at once for what a
	// person has granted, and for what was used of limits a second later at most. It
	// must not block.
	Changed func(sandbox string)
	// Connections bounds the open streams of one sandbox; 0 is 1,024, or less
	// where the process may not have so many descriptors.
	Connections int
	// SniffTimeout bounds the wait for a stream's first bytes, where they decide;
	// 0 is 10 seconds.
	SniffTimeout time.Duration
}

// Sandbox is what a box is made for.
type Sandbox struct {
	ID      string // required, unique in the server
	Session string
	Policy  *policy.Policy // nil denies everything
	// Names is the lineage's table, which is the box's from then on; nil is an empty one.
	Names *names.Table
	// Web speaks HTTP for this sandbox. It is required.
	Web act.Web
	// Secrets are its grants, or nil.
	Secrets act.Secrets
	// Search are the suffixes that the sandbox's resolver appends to short names.
	Search []string
	// AskTimeout is this sandbox's own; 0 is that of the server.
	AskTimeout time.Duration
	// Unattended: nobody is asked for this one.
	Unattended bool
	// State is what Box.State said of the same sandbox before.
	State State
}

// Server holds the boxes of many sandboxes.
type Server struct {
	options Options

	mu     sync.Mutex
	boxes  map[string]*Box
	closed bool
}

// New makes a server.
func New(o Options) (*Server, error) {
	if o.Audit == nil {
		return nil, bailey.Errorf(bailey.CodeInternal, "start the gate", "", "it has no audit log")
	}
	if o.Dialer == nil {
		o.Dialer = dial.New(dial.Options{})
	}
	if o.AskTimeout == 0 {
		o.AskTimeout = 2 * time.Minute
	}
	if o.Connections == 0 {
		o.Connections = connections()
	}
	if o.SniffTimeout == 0 {
		o.SniffTimeout = 10 * time.Second
	}
	return &Server{options: o, boxes: map[string]*Box{}}, nil
}

// Add makes a box. Nothing is served before its Serve.
func (s *Server) Add(sb Sandbox) (*Box, error) {
	what := fmt.Sprintf("make a way out for sandbox %q", sb.ID)
	if sb.ID == "" || sb.Web == nil {
		return nil, bailey.Errorf(bailey.CodeInternal, what, "", "it has no id, or nothing that speaks HTTP")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, bailey.Errorf("gate_closed", what, "", "the gate has been closed")
	}
	if s.boxes[sb.ID] != nil {
		return nil, bailey.Errorf(bailey.CodeInternal, what, "close it first", "it has one")
	}
	b := newBox(s, sb)
	s.boxes[sb.ID] = b
	return b, nil
}

// Box gives the box of a sandbox, or nil.
func (s *Server) Box(id string) *Box {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boxes[id]
}

func (s *Server) remove(b *Box) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.boxes[b.id] == b {
		delete(s.boxes, b.id)
	}
}

// Close ends every box and returns when nothing of them runs any more.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	var all sync.WaitGroup
	for _, b := range s.boxes {
		all.Go(b.Close)
	}
	s.mu.Unlock()
	all.Wait()
}
