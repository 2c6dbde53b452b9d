//go:build linux && (amd64 || arm64)

package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// played is a guest's end that a test plays: it opens the conversation, answers
// pings, and leaves the rest to the test.
type played struct {
	net.Conn
	version uint16
	exec    func(f frame) []byte // the answer to EXEC and ATTACH, with what goes around it

	mu  sync.Mutex
	saw []frameType // frames from the owner, but for what opens
}

// play gives a client whose sandbox is p.
func (p *played) play(t *testing.T) *Client {
	t.Helper()
	host, guest := net.Pipe()
	p.Conn = guest
	t.Cleanup(func() { guest.Close() })
	out := make(chan []byte, 100) // net.Pipe has no buffer
	go func() {
		for b := range out {
			guest.Write(b)
		}
	}()
	go func() {
		defer close(out)
		d := newDecoder(maxFrameToGuest)
		d.onReset, d.onLost = func() {}, func(why string) { t.Error(why) }
		d.onFrame = func(f frame) error {
			if f.typ != frameReset && f.typ != frameHello {
				p.mu.Lock() // before the answer, after which the test looks
				p.saw = append(p.saw, f.typ)
				p.mu.Unlock()
			}
			switch f.typ {
			case frameReset:
				n, _ := parseU64(f.payload)
				b := endFrame(putU64(beginFrame(appendReset(nil), frameResetDone, 0, 0), n), len(mark)+1)
				out <- append(b, endFrame(hello{version: p.version}.put(beginFrame(nil, frameHelloDone, 0, 0)), 0)...)
				return nil
			case frameHello:
				return nil
			case framePing:
				out <- endFrame(beginFrame(nil, frameAnswer, 0, f.req), 0)
			case frameExec, frameAttach:
				out <- p.exec(f)
			}
			return nil
		}
		feedAll(d, guest)
	}()
	c, err := NewClient(testContext(t), host, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// frames are the payloads' frames, one after the other.
func frames(list ...[]byte) []byte { return slices.Concat(list...) }

func outputFrame(offset int64, data string, eof bool) []byte {
	m := bytesMsg{id: "x", stream: 1, offset: offset, data: []byte(data), eof: eof}
	return endFrame(m.put(beginFrame(nil, frameOutput, 0, 0)), 0)
}

func replyFrame(f frame, m execReply) []byte {
	return endFrame(m.put(beginFrame(nil, frameAnswer, 0, f.req)), 0)
}

// What arrives between the request for an execution and its answer was sent for
// whoever followed that id before, and does nothing; and who has let go of an
// execution says nothing more about it.
func TestFollowedAgain(t *testing.T) {
	late := &ExecEnd{ExitCode: 1, Output: [2]int64{-1, -1}}
	end := &ExecEnd{ExitCode: 2, Output: [2]int64{3, -1}}
	late2 := frames(
		outputFrame(3, "late", false), outputFrame(7, "", true),
		endFrame((&eventMsg{id: "x", kind: EventEnded, end: late}).put(beginFrame(nil, frameEvent, 0, 0)), 0),
		endFrame(ackMsg{id: "x", closed: true, offset: 1000}.put(beginFrame(nil, frameStdinAck, 0, 0)), 0))
	first := true
	p := &played{version: Version}
	p.exec = func(f frame) []byte {
		if first {
			first = false
			return frames(replyFrame(f, execReply{pid: 5, state: StateRunning, streams: 3}), outputFrame(0, "one", false))
		}
		return frames(late2, replyFrame(f, execReply{existing: true, pid: 6, state: StateEnded, streams: 3, end: end}), outputFrame(0, "two", true))
	}
	c := p.play(t)
	ctx := testContext(t)
	old, err := c.Exec(ctx, ExecSpec{ID: "x", Argv: []string{"x"}, Stdin: true, ManualAck: true})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 3)
	if _, err := io.ReadFull(old.Stdout(), buf); err != nil || string(buf) != "one" {
		t.Fatalf("%q, %v", buf, err)
	}
	old.Close()
	again, err := c.Exec(ctx, ExecSpec{ID: "x", Argv: []string{"x"}, Stdin: true, ManualAck: true})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(again.Stdout()); err != nil || string(b) != "two" {
		t.Errorf("%q, %v", b, err)
	}
	if e, err := again.Wait(ctx); err != nil || e.ExitCode != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	old.Stdout().Ack(3)
	if _, err := old.Stdin().Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	old.Stdin().Close()
	if _, err := again.Stdin().Write([]byte("x")); err != nil {
		t.Error(err)
	}
	again.Stdout().Ack(3)
	if err := c.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if want := []frameType{frameExec, frameExec, frameStdin, frameAck, framePing}; !slices.Equal(p.saw, want) {
		t.Errorf("the sandbox got frames %v, want %v", p.saw, want)
	}
}

// A guest of version 1 does not say how much input was written.
func TestFollowVersion1(t *testing.T) {
	p := &played{version: 1, exec: func(f frame) []byte {
		m := execReply{pid: 5, state: StateRunning, streams: 3, stdin: 7}
		b := m.put(beginFrame(nil, frameAnswer, 0, f.req))
		return frames(endFrame(b[:len(b)-9], 0), outputFrame(0, "one", true))
	}}
	c := p.play(t)
	x, err := c.Exec(testContext(t), ExecSpec{ID: "x", Argv: []string{"x"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(x.Stdout()); err != nil || string(b) != "one" || x.fed.sent != 7 || x.fed.written != 7 {
		t.Errorf("%q, %v, input at %d of %d", b, err, x.fed.written, x.fed.sent)
	}
}

// idleSession is a conversation of a server whose frames nobody sends: the test
// is the link's writer.
func idleSession(t *testing.T) *session {
	s, err := NewServer(ServerOptions{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &session{s: s, l: newLink(plain{nopCloser{}}, maxFrameToGuest), ops: map[uint32]*fileOp{}, open: true}
}

// The link has taken a stream up to ask it for a frame just before the stream
// gets another follower: what it then gives would come before the answer, so it
// gives nothing, and all of it comes after.
func TestFollowerIsReplaced(t *testing.T) {
	c := idleSession(t)
	m := &execMsg{id: "x", argv: []string{"/bin/sh", "-c", "echo out"}, dir: "/"}
	ask := func(req uint32) {
		t.Helper()
		if err := c.frame(frame{typ: frameExec, req: req, payload: m.put(nil)}); err != nil {
			t.Fatal(err)
		}
	}
	ask(1)
	o := c.s.find("x").out[0]
	for eof := false; !eof; {
		o.e.mu.Lock()
		eof = o.eof
		o.e.mu.Unlock()
		runtime.Gosched()
	}
	o.e.mu.Lock()
	earlier := o.to
	o.e.mu.Unlock()
	ask(2)
	if b, more := earlier.nextFrame(nil); len(b) != 0 || more {
		t.Errorf("the earlier follower is sent %q after the answer to the next one is made", b)
	}
	var got []byte
	for _, src := range c.l.sources {
		b, _ := src.nextFrame(nil)
		got = append(got, b...)
	}
	if !bytes.Contains(got, outputFrame(0, "out\n", true)) {
		t.Errorf("the new follower is sent %q", got)
	}
}

// Whoever follows a command that has not read its input yet can send as much
// as there is room for, no more, and what is shut takes nothing.
func TestInputOfTheNextFollower(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		if c.PassesDescriptors() {
			return // the input is the first follower's pipe
		}
		ctx := testContext(t)
		dir := t.TempDir()
		spec := sh("in", fmt.Sprintf("while ! [ -e %s/go ]; do sleep 0.02; done; wc -c", dir))
		spec.Stdin = true
		p, err := c.Exec(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		const n = MaxStdin
		if _, err := p.Stdin().Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		p.Close()
		next, err := c.Exec(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() {
			_, err := next.Stdin().Write(make([]byte, n))
			next.Stdin().Close()
			written <- err
		}()
		if err := c.Ping(ctx); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(next.Stdout()); err != nil || string(b) != fmt.Sprintln(2*n) {
			t.Fatalf("%q, %v", b, err)
		}
		next.Close()
		last, err := c.Exec(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := last.Stdin().Write([]byte("more")); !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
		last.Stdin().Close()
		if err := c.Ping(ctx); err != nil {
			t.Error(err)
		}
	})
}
