package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/bailey-sandbox/bailey"
)

// Events are what a gate says by itself. Nil functions ignore it.
type Events struct {
	// Denied is told each denial that differs from earlier ones of its sandbox, in order. It
	// must not block.
	Denied func(sandbox string, d Denial)
	// Ask puts a question to a person and gives the answer; ctx ends when
	// nobody waits for it any more.
	Ask func(ctx context.Context, q Question) Answer
	// Saved is told what Open.Saved is from now on, when that has changed by itself.
	// It must not block.
	Saved func(sandbox string, saved json.RawMessage)
}

// Client is the starter's end.
type Client struct {
	link   *link
	events Events
}

// NewClient takes conn over, the starter's end of a Pair.
func NewClient(conn *os.File, events Events) (*Client, error) {
	l, err := newLink(conn)
	if err != nil {
		return nil, err
	}
	c := &Client{l, events}
	l.handle, l.event = c.handle, c.event
	go l.serve()
	return c, nil
}

func (c *Client) handle(ctx context.Context, op string, body json.RawMessage, files []*os.File) (any, []*os.File, error) {
	closeFiles(files)
	if op != opAsk {
		return nil, nil, fmt.Errorf("the gate asked for %q", op)
	}
	var q Question
	if err := strict(body, &q); err != nil {
		return nil, nil, err
	}
	if c.events.Ask == nil {
		return Answer{}, nil, nil
	}
	return c.events.Ask(ctx, q), nil, nil
}

func (c *Client) event(op string, body json.RawMessage) error {
	switch op {
	case opDenied:
		var d Denial
		if err := strict(body, &d); err != nil {
			return err
		}
		if c.events.Denied != nil {
			c.events.Denied(d.Sandbox, d)
		}
	case opSaved:
		var n named
		if err := strict(body, &n); err != nil {
			return err
		}
		if c.events.Saved != nil {
			c.events.Saved(n.Sandbox, n.Saved)
		}
	default:
		return fmt.Errorf("the gate said %q", op)
	}
	return nil
}

// Check reads a policy and says what it asks for beside what may be reached.
func (c *Client) Check(ctx context.Context, p Policy) (Checked, error) {
	var out Checked
	_, err := c.link.call(ctx, opCheck, p, nil, &out)
	return out, err
}

// Open asks for a way out. The gate has given up its rights when it answers.
// names, if it is not nil, is the file that keeps the table of names; it stays the
// caller's, who may close it at once.
func (c *Client) Open(ctx context.Context, o Open, names *os.File) (*Opened, error) {
	o.Root.Bundles = slices.Clone(o.Root.Bundles)
	packed, err := pack(o.Root.Bundles)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeSetupFailed, "open a way out", "", "%w", err)
	}
	defer closeFiles(packed)
	files := packed
	if o.Names = names != nil; o.Names {
		files = append([]*os.File{names}, packed...)
	}
	opened := &Opened{}
	came, err := c.link.call(ctx, opOpen, o, files, opened)
	if err != nil {
		return nil, err
	}
	defer closeFiles(came)
	if err := unpack(opened.Files, came); err != nil {
		c.link.fail(err)
		return nil, c.link.lost()
	}
	return opened, nil
}

// pack makes sealed descriptors of the contents, each once.
func pack(list []File) (files []*os.File, err error) {
	for i := range list {
		f := &list[i]
		f.Size = int64(len(f.Content))
		f.Same = 1 + slices.IndexFunc(list[:i], func(g File) bool { return bytes.Equal(g.Content, f.Content) })
		if f.Same > 0 {
			continue
		}
		made, err := seal(f.Content)
		if err != nil {
			closeFiles(files)
			return nil, err
		}
		files = append(files, made)
	}
	return files, nil
}

// unpack gives the files their content.
func unpack(list []File, came []*os.File) error {
	next := 0
	for i := range list {
		f := &list[i]
		switch {
		case f.Same < 0 || f.Same > i:
			return fmt.Errorf("file %d is to be the same as file %d", i+1, f.Same)
		case f.Same > 0 && f.Size != list[f.Same-1].Size:
			return fmt.Errorf("two sizes of the files %d and %d", i+1, f.Same)
		case f.Same > 0:
			f.Content = list[f.Same-1].Content
			continue
		case next == len(came):
			return fmt.Errorf("%d files came, which is too few", len(came))
		}
		if err := f.read(came[next]); err != nil {
			return err
		}
		next++
	}
	if next < len(came) {
		return fmt.Errorf("%d files came for %d names", len(came), next)
	}
	return nil
}

// read takes the content out of a descriptor that the gate cannot change any more.
func (f *File) read(from *os.File) error {
	if err := sealed(from); err != nil {
		return err
	}
	if f.Size < 0 || f.Size > maxContent {
		return fmt.Errorf("a file of %d bytes is too large", f.Size)
	}
	f.Content = make([]byte, f.Size)
	if n, err := from.ReadAt(f.Content, 0); int64(n) != f.Size && (err == nil || errors.Is(err, io.EOF)) {
		return io.ErrUnexpectedEOF
	} else if int64(n) != f.Size {
		return err
	}
	return nil
}

// Attach hands the sandbox's listeners over: from its answer on they are served,
// in place of earlier ones. The files stay the caller's, who may close them at once.
func (c *Client) Attach(ctx context.Context, sandbox string, tcp, udp *os.File) error {
	_, err := c.link.call(ctx, opAttach, named{Sandbox: sandbox}, []*os.File{tcp, udp}, &struct{}{})
	return err
}

// Detach has the gate let go of the sandbox's listeners and of what came through
// them. The way stays open.
func (c *Client) Detach(ctx context.Context, sandbox string) error {
	_, err := c.link.call(ctx, opDetach, named{Sandbox: sandbox}, nil, &struct{}{})
	return err
}

// Update puts another policy in force, for new acts at once and for open ones
// within a second.
func (c *Client) Update(ctx context.Context, sandbox string, p Policy) (Updated, error) {
	var u Updated
	_, err := c.link.call(ctx, opUpdate, named{Sandbox: sandbox, Policy: &p}, nil, &u)
	return u, err
}

// Revoke takes a secret from a sandbox: its placeholder is worth nothing from
// the answer on. It gives what Open.Saved is from now on.
func (c *Client) Revoke(ctx context.Context, sandbox, secret string) (json.RawMessage, error) {
	var n named
	_, err := c.link.call(ctx, opRevoke, named{Sandbox: sandbox, Secret: secret}, nil, &n)
	return n.Saved, err
}

// Used says what goes through the ways, by sandbox; those that never had anything
// are left out. Nothing is recorded.
func (c *Client) Used(ctx context.Context) (map[string]Usage, error) {
	used := map[string]Usage{}
	_, err := c.link.call(ctx, opUsed, struct{}{}, nil, &used)
	return used, err
}

// Denials gives what was refused to a sandbox so far, as Closed does.
func (c *Client) Denials(ctx context.Context, sandbox string) (Denied, error) {
	var out Denied
	_, err := c.link.call(ctx, opDenials, named{Sandbox: sandbox}, nil, &out)
	return out, err
}

// Close ends a sandbox's way out and says what it was used for.
func (c *Client) Close(ctx context.Context, sandbox string) (Closed, error) {
	var out Closed
	_, err := c.link.call(ctx, opClose, named{Sandbox: sandbox}, nil, &out)
	return out, err
}

// Hangup ends the connection, and with it the gate's process.
func (c *Client) Hangup() { c.link.fail(nil) }

// Done is closed when the connection is over, for whatever reason.
func (c *Client) Done() <-chan struct{} { return c.link.done }

// named is the body of requests about an open sandbox.
type named struct {
	Sandbox string  `json:"sandbox,omitempty"`
	Policy  *Policy `json:"policy,omitempty"`
	Secret  string  `json:"secret,omitempty"`
	// Saved: in what the gate says.
	Saved json.RawMessage `json:"saved,omitempty"`
}
