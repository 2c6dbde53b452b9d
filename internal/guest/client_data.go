package guest

import (
	"io"
	"sync"
)

// inbound is data from inside that belongs to one request.
type inbound struct {
	c   *Client
	req uint32

	mu      sync.Mutex
	changed sync.Cond
	chunks  [][]byte
	held    int // bytes in chunks
	taken   int // bytes taken since credit was last given
	over    bool
	err     error // once over; nil for a good end
}

func newInbound(c *Client) *inbound {
	in := &inbound{c: c}
	in.changed.L = &in.mu
	return in
}

func (in *inbound) feed(p []byte) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(p) > maxChunk || in.held+in.taken+len(p) > window {
		return errMessage
	}
	if !in.over {
		in.chunks = append(in.chunks, append([]byte(nil), p...))
		in.held += len(p)
		in.changed.Broadcast()
	}
	return nil
}

func (in *inbound) finish(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.over {
		in.over, in.err = true, err
		in.changed.Broadcast()
	}
}

// Read implements io.Reader. The error that the request ended with comes after
// the data.
func (in *inbound) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	in.mu.Lock()
	for len(in.chunks) == 0 && !in.over {
		in.changed.Wait()
	}
	if len(in.chunks) == 0 {
		defer in.mu.Unlock()
		if in.err != nil {
			return 0, in.err
		}
		return 0, io.EOF
	}
	n := copy(p, in.chunks[0])
	if in.chunks[0] = in.chunks[0][n:]; len(in.chunks[0]) == 0 {
		in.chunks[0] = nil
		in.chunks = in.chunks[1:]
	}
	in.held -= n
	in.taken += n
	give := 0
	// What was taken in small pieces is given back when nothing is held, so
	// that the other end never waits for less than it was promised.
	if in.taken >= window/4 || in.held == 0 {
		give, in.taken = in.taken, 0
	}
	over := in.over
	in.mu.Unlock()
	if give > 0 && !over {
		in.c.l.send(frameCredit, in.req, func(b []byte) []byte { return putU32(b, uint32(give)) })
	}
	return n, nil
}

// record reads one record of a stream of records. io.EOF is its good end.
func (in *inbound) record(parse func(*reader)) error {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return err
	}
	h := reader{b: head[:]}
	n := h.u32()
	if n > maxRecord {
		return errMessage
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(in, b); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	r := reader{b: b}
	parse(&r)
	return r.done()
}

// outbound is the right to send data for one request.
type outbound struct {
	mu      sync.Mutex
	changed sync.Cond
	credit  int
	over    bool
}

func newOutbound() *outbound {
	o := &outbound{credit: window}
	o.changed.L = &o.mu
	return o
}

func (o *outbound) add(n int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.credit += n; o.credit > window {
		return errMessage
	}
	o.changed.Broadcast()
	return nil
}

func (o *outbound) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.changed.Broadcast()
}

// take waits for the right to send up to n bytes, and gives how many; 0 when
// the request is over.
func (o *outbound) take(n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.credit == 0 && !o.over {
		o.changed.Wait()
	}
	if o.over {
		return 0
	}
	n = min(n, o.credit, maxChunk)
	o.credit -= n
	return n
}
