//go:build linux && (amd64 || arm64)

package guest

import (
	"time"

	bailey "github.com/bailey-sandbox/bailey"
)

// passed is a request of the owner that the inside answers. Its data goes through, and is
// counted: neither end can make the relay hold more than a window of it each way.
type passed struct {
	t     to
	req   uint32 // the owner's number
	inner uint32 // the relay's
	in    bool   // data may come from inside
	out   bool   // data may come from the owner
	then  func() // called after a good answer, before it is passed on

	// Guarded by t.o.mu.
	unread   int // bytes that the owner has not taken
	untaken  int // bytes that the inside has not taken
	finished bool
}

// check reads a request's payload, so that the inside never gets what makes no sense, and
// says which ways its data goes.
func (o *ownerSession) check(f frame, p *passed) error {
	switch f.typ {
	case frameSignal:
		_, err := parseSignal(f.payload)
		return err
	case frameResize:
		m, err := parseResize(f.payload)
		if err == nil {
			if x := o.r.find(m.id); x != nil {
				x.resize(m.window)
			}
		}
		return err
	case frameStatus:
		_, err := parseID(f.payload)
		return err
	case frameForget:
		id, err := parseID(f.payload)
		p.then = func() { o.r.forget(id) }
		return err
	case frameExecs, frameProcesses:
		p.in = true
		if len(f.payload) != 0 {
			return errMessage
		}
		return nil
	case frameFile:
		p.in, p.out = true, true
		_, err := parseFile(f.payload)
		return err
	case frameShutdown:
		v, err := parseU64(f.payload)
		if err == nil && v > uint64(time.Hour) {
			err = errMessage
		}
		if err == nil {
			o.r.ending.Store(true)
		}
		return err
	case frameClock:
		_, err := parseU64(f.payload)
		return err
	case frameEntropy:
		if len(f.payload) == 0 || len(f.payload) > maxEntropy {
			return errMessage
		}
		return nil
	case framePing:
		if len(f.payload) != 0 {
			return errMessage
		}
		return nil
	}
	return errMessage
}

// request passes a request on, or what belongs to one.
func (o *ownerSession) request(f frame) error {
	switch f.typ {
	case frameChunk, frameCredit, frameCancel:
		return o.data(f)
	}
	p := &passed{t: o.now(), req: f.req}
	if err := o.check(f, p); err != nil {
		return err
	}
	if twice, err := o.register(p); twice {
		return errMessage
	} else if err != nil {
		p.t.fail(f.req, failureOfRelay(err))
		return nil
	}
	payload := f.payload
	o.r.c.l.send(f.typ, p.inner, func(b []byte) []byte { return append(b, payload...) })
	return nil
}

// register gives a request its number inside. The lock is held all along: an inside that
// answers what it was not asked yet finds the request whole.
func (o *ownerSession) register(p *passed) (twice bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, twice = o.ops[p.req]; twice {
		return true, nil
	}
	if p.in && o.files >= MaxFileOps {
		return false, bailey.Errorf(bailey.CodeBusy, "pass a request on", "wait for earlier ones", "%d requests for files are waiting", MaxFileOps)
	}
	if p.inner, err = o.r.c.begin("pass a request on", &call{raw: p}); err != nil {
		return false, err
	}
	o.ops[p.req] = p
	if p.in {
		o.files++
	}
	return false, nil
}

// failureOfRelay tells why a request was not passed on.
func failureOfRelay(err error) failMsg {
	text := err.Error()
	m := failMsg{kind: failConflict, text: text[:min(len(text), maxText)]}
	if bailey.CodeOf(err) == bailey.CodeBusy {
		m.kind = failBusy
	}
	return m
}

// data passes on what belongs to a request. What is for one that has just ended is no
// mistake.
func (o *ownerSession) data(f frame) error {
	n := 0
	switch f.typ {
	case frameCancel:
		if len(f.payload) != 0 {
			return errMessage
		}
	case frameCredit:
		var err error
		if n, err = parseCredit(f.payload); err != nil {
			return err
		}
	}
	o.mu.Lock()
	p := o.ops[f.req]
	if p == nil {
		o.mu.Unlock()
		return nil
	}
	wrong := false
	switch f.typ {
	case frameCancel:
		o.drop(p)
	case frameCredit:
		p.unread -= n
		wrong = !p.in || p.unread < 0
	default:
		wrong = !p.out || p.finished || len(f.payload) > maxChunk || p.untaken+len(f.payload) > window
		p.untaken += len(f.payload)
		p.finished = len(f.payload) == 0
	}
	o.mu.Unlock()
	if wrong {
		return errMessage
	}
	if f.typ == frameCancel {
		o.r.c.abandon(p.inner)
		return nil
	}
	payload := f.payload
	o.r.c.l.send(f.typ, p.inner, func(b []byte) []byte { return append(b, payload...) })
	return nil
}

// drop forgets a request. o.mu is held.
func (o *ownerSession) drop(p *passed) {
	if o.ops[p.req] != p {
		return
	}
	delete(o.ops, p.req)
	if p.in {
		o.files--
	}
}

// chunk takes data from inside.
func (p *passed) chunk(data []byte) error {
	o := p.t.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if !p.in || len(data) == 0 || len(data) > maxChunk || p.unread+len(data) > window {
		return errMessage
	}
	if o.epoch != p.t.epoch {
		return nil
	}
	p.unread += len(data)
	o.l.send(frameChunk, p.req, func(b []byte) []byte { return append(b, data...) })
	return nil
}

// credit takes the right to send from inside.
func (p *passed) credit(n int) error {
	o := p.t.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.untaken -= n; !p.out || p.untaken < 0 {
		return errMessage
	}
	if o.epoch == p.t.epoch {
		o.l.send(frameCredit, p.req, func(b []byte) []byte { return putU32(b, uint32(n)) })
	}
	return nil
}

// answered takes the answer from inside.
func (p *passed) answered(f frame) {
	if p.then != nil && f.typ == frameAnswer {
		p.then()
	}
	o := p.t.o
	o.mu.Lock()
	o.drop(p)
	o.mu.Unlock()
	payload := f.payload
	p.t.send(f.typ, p.req, nil, func(b []byte) []byte { return append(b, payload...) })
}
