package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/bailey-sandbox/bailey"
)

// reply is the body of an answer to a request.
type reply struct {
	Error *bailey.Error   `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// link is one end of the connection: requests in both directions, answered by id.
type link struct {
	sock *socket
	// handle answers a request; its files are its to close. It runs in a
	// goroutine of its own. body and files go back.
	handle func(ctx context.Context, op string, body json.RawMessage, files []*os.File) (any, []*os.File, error)
	// event takes what wants no answer, in order.
	event func(op string, body json.RawMessage) error

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan answered
	working map[uint64]context.CancelFunc // requests of the other end
	err     error
	done    chan struct{}
}

type answered struct {
	reply reply
	files []*os.File
}

const (
	opReply   = "reply"
	opCheck   = "check"
	opOpen    = "open"
	opAttach  = "attach"
	opUpdate  = "update"
	opRevoke  = "revoke"
	opDetach  = "detach"
	opDenials = "denials"
	opUsed    = "used"
	opClose   = "close"
	opDenied  = "denied"
	opAsk     = "ask"
	opSaved   = "saved"
	opCancel  = "cancel" // of the request with this id: nobody waits for it any more
)

// maxOpen is how many requests of the other end are worked on at once. Whoever
// sends more is broken.
const maxOpen = 4096

func newLink(f *os.File) (*link, error) {
	s, err := newSocket(f)
	if err != nil {
		return nil, err
	}
	return &link{sock: s, waiting: map[uint64]chan answered{}, working: map[uint64]context.CancelFunc{}, done: make(chan struct{})}, nil
}

// serve reads until the connection is over and gives the reason, nil for its
// plain end. Handlers have returned by then.
func (l *link) serve() error {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	slots := make(chan struct{}, maxOpen)
	var err error
	for err == nil {
		var e envelope
		var files []*os.File
		if e, files, err = l.sock.next(); err == nil {
			err = l.take(ctx, e, files, &work, slots)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		err = nil
	}
	l.fail(err)
	cancel()
	work.Wait()
	return err
}

func (l *link) take(ctx context.Context, e envelope, files []*os.File, work *sync.WaitGroup, slots chan struct{}) error {
	switch {
	case e.Op == opReply:
		var r reply
		if err := strict(e.Body, &r); err != nil {
			closeFiles(files)
			return err
		}
		l.mu.Lock()
		wait := l.waiting[e.ID]
		delete(l.waiting, e.ID)
		l.mu.Unlock()
		if wait == nil { // nobody waits any more
			closeFiles(files)
			return nil
		}
		wait <- answered{r, files}
		return nil
	case e.Op == opCancel:
		closeFiles(files)
		l.mu.Lock()
		cancel := l.working[e.ID]
		l.mu.Unlock()
		if cancel != nil {
			cancel()
		}
		return nil
	case e.ID == 0:
		closeFiles(files)
		return l.event(e.Op, e.Body)
	}
	select {
	case slots <- struct{}{}:
	default:
		closeFiles(files)
		return fmt.Errorf("more than %d requests at once", maxOpen)
	}
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	l.working[e.ID] = cancel
	l.mu.Unlock()
	work.Go(func() {
		defer func() { <-slots }()
		body, back, err := l.handle(ctx, e.Op, e.Body, files)
		l.mu.Lock()
		delete(l.working, e.ID)
		l.mu.Unlock()
		cancel()
		defer closeFiles(back)
		r := reply{}
		if err == nil {
			r.Body, err = json.Marshal(body)
		}
		if err != nil {
			r = reply{Error: asError(err)}
			closeFiles(back)
			back = nil
		}
		text, err := json.Marshal(r)
		if err == nil {
			err = l.sock.send(envelope{Op: opReply, ID: e.ID, Body: text}, back)
		}
		if err != nil {
			l.fail(err)
		}
	})
	return nil
}

// asError gives an error in the form that crosses the wire.
func asError(err error) *bailey.Error {
	var be *bailey.Error
	if errors.As(err, &be) {
		return be
	}
	return bailey.Errorf(bailey.CodeInternal, "use the gate", "please report it", "%w", err)
}

// call sends a request and waits for its answer. files stay the caller's.
func (l *link) call(ctx context.Context, op string, body any, files []*os.File, into any) ([]*os.File, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	wait := make(chan answered, 1)
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return nil, l.lost()
	}
	l.last++
	id := l.last
	l.waiting[id] = wait
	l.mu.Unlock()
	if err := l.sock.send(envelope{Op: op, ID: id, Body: text}, files); err != nil {
		l.fail(err)
		return nil, l.lost()
	}
	select {
	case a := <-wait:
		if a.reply.Error != nil {
			closeFiles(a.files)
			return nil, a.reply.Error
		}
		if err := strict(a.reply.Body, into); err != nil {
			closeFiles(a.files)
			l.fail(err)
			return nil, l.lost()
		}
		return a.files, nil
	case <-l.done:
		return nil, l.lost()
	case <-ctx.Done():
		l.mu.Lock()
		delete(l.waiting, id)
		l.mu.Unlock()
		if err := l.sock.send(envelope{Op: opCancel, ID: id}, nil); err != nil {
			l.fail(err)
		}
		return nil, ctx.Err()
	}
}

// tell sends what wants no answer.
func (l *link) tell(op string, body any) error {
	text, err := json.Marshal(body)
	if err == nil {
		err = l.sock.send(envelope{Op: op, Body: text}, nil)
	}
	return err
}

// errOver is the plain end of a connection.
var errOver = errors.New("the connection is over")

// fail ends the connection, once.
func (l *link) fail(err error) {
	if err == nil {
		err = errOver
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		close(l.done)
		l.sock.f.Close()
	}
}

// lost is the error of a request that the connection's end cut short.
func (l *link) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bailey.Errorf(bailey.CodeSandboxLost, "speak with the gate", "look for its last words above, and run it again", "%w", l.err)
}
