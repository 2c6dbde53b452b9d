package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Monitor is a conversation. Its methods may be called by several goroutines.
type Monitor struct {
	f   *os.File
	raw syscall.RawConn

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	events  []string // those that nobody has waited for yet
	heard   chan struct{}
	err     error
}

// maxLine bounds a message, in bytes; maxEvents what is remembered of events.
const (
	maxLine   = 1 << 20
	maxEvents = 64
)

var errMessage = errors.New("the monitor said something that makes no sense")

// Failure is what the monitor says when it could not do something.
type Failure struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

// Error implements error.
func (f *Failure) Error() string { return "the monitor: " + f.Desc }

type reply struct {
	value json.RawMessage
	err   error
}

// message is any line of the monitor's.
type message struct {
	Greeting json.RawMessage `json:"QMP"`
	Return   json.RawMessage `json:"return"`
	Error    *Failure        `json:"error"`
	ID       *int            `json:"id"`
	Event    string          `json:"event"`
	Data     json.RawMessage `json:"data"`
}

// New takes over a socket and opens the conversation.
func New(ctx context.Context, f *os.File) (*Monitor, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	m := &Monitor{f: f, raw: raw, waiting: map[int]chan reply{}, heard: make(chan struct{})}
	go m.read(f)
	if _, err := m.Do(ctx, "qmp_capabilities", nil); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close ends the conversation.
func (m *Monitor) Close() { m.f.Close() }

// read hands out what the monitor says until it ends.
func (m *Monitor) read(r io.Reader) {
	var line []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		line = append(line, buf[:n]...)
		for err == nil {
			i := bytes.IndexByte(line, '\n')
			if i < 0 {
				break
			}
			err = m.take(line[:i])
			line = line[i+1:]
		}
		if err == nil && len(line) > maxLine {
			err = errMessage
		}
		if err != nil {
			m.fail(err)
			return
		}
	}
}

func (m *Monitor) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
	for id, c := range m.waiting {
		delete(m.waiting, id)
		c <- reply{err: m.err}
	}
	close(m.heard)
	m.heard = make(chan struct{})
}

// take takes one line.
func (m *Monitor) take(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	var msg message
	if err := json.Unmarshal(line, &msg); err != nil {
		return errMessage
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case msg.Event != "":
		if m.events = append(m.events, msg.Event+" "+status(msg.Data)); len(m.events) > maxEvents {
			m.events = m.events[1:]
		}
		close(m.heard)
		m.heard = make(chan struct{})
	case msg.Greeting != nil:
	case msg.ID != nil:
		c := m.waiting[*msg.ID]
		delete(m.waiting, *msg.ID)
		if c == nil {
			return errMessage
		}
		r := reply{value: msg.Return}
		if msg.Error != nil {
			r.err = msg.Error
		}
		c <- r
	default:
		return errMessage
	}
	return nil
}

// status takes the one word out of an event's data that matters here.
func status(b json.RawMessage) string {
	var d struct {
		Status string `json:"status"`
	}
	json.Unmarshal(b, &d)
	return d.Status
}

// Do has a command done.
func (m *Monitor) Do(ctx context.Context, command string, args any) (json.RawMessage, error) {
	return m.do(ctx, command, args, -1)
}

// Give gives the monitor a descriptor under a name.
func (m *Monitor) Give(ctx context.Context, name string, f *os.File) error {
	_, err := m.do(ctx, "getfd", map[string]any{"fdname": name}, int(f.Fd()))
	return err
}

func (m *Monitor) do(ctx context.Context, command string, args any, fd int) (json.RawMessage, error) {
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return nil, m.err
	}
	m.next++
	id := m.next
	c := make(chan reply, 1)
	m.waiting[id] = c
	m.mu.Unlock()
	q := map[string]any{"execute": command, "id": id}
	if args != nil {
		q["arguments"] = args
	}
	b, err := json.Marshal(q)
	if err == nil {
		err = m.send(append(b, '\n'), fd)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the monitor to %s: %w", command, err)
	}
	select {
	case r := <-c:
		if r.err != nil {
			return nil, fmt.Errorf("%s: %w", command, r.err)
		}
		return r.value, nil
	case <-ctx.Done():
		m.mu.Lock()
		m.waiting[id] = make(chan reply, 1) // its answer is nobody's
		m.mu.Unlock()
		return nil, fmt.Errorf("%s: %w", command, ctx.Err())
	}
}

func (m *Monitor) send(b []byte, fd int) error {
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	for len(b) > 0 {
		var n int
		var err error
		if e := m.raw.Write(func(s uintptr) bool {
			n, err = unix.SendmsgN(int(s), b, oob, nil, unix.MSG_NOSIGNAL)
			return err != unix.EAGAIN && err != unix.EINTR
		}); e != nil {
			return e
		}
		if err != nil {
			return err
		}
		b, oob = b[n:], nil
	}
	return nil
}

// Await waits for one of some events, each a name and a status, "" if it has none, with a
// space between them, and gives the one that came.
func (m *Monitor) Await(ctx context.Context, events ...string) (string, error) {
	for {
		m.mu.Lock()
		for i, e := range m.events {
			for _, want := range events {
				if e == want {
					m.events = append(m.events[:i:i], m.events[i+1:]...)
					m.mu.Unlock()
					return e, nil
				}
			}
		}
		heard, err := m.heard, m.err
		m.mu.Unlock()
		if err != nil {
			return "", err
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return "", fmt.Errorf("wait for the monitor: %w", ctx.Err())
		}
	}
}
