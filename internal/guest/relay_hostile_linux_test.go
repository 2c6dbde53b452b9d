//go:build linux && (amd64 || arm64)

package guest

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"testing"
	"time"
)

// wickedly is an inside that opens the conversation properly and then says what it is told to.
type wickedly struct {
	net.Conn
	exec, file chan frame
}

func newWicked(t testing.TB) (*wickedly, *Client) {
	t.Helper()
	host, theirs := net.Pipe()
	w := &wickedly{Conn: theirs, exec: make(chan frame, 1), file: make(chan frame, 1)}
	go func() {
		d := newDecoder(maxFrameToGuest)
		d.onReset, d.onLost = func() {}, func(string) {}
		d.onFrame = func(f frame) error {
			f.payload = append([]byte(nil), f.payload...)
			switch f.typ {
			case frameReset:
				n, _ := parseU64(f.payload)
				b := endFrame(putU64(beginFrame(appendReset(nil), frameResetDone, 0, 0), n), len(mark)+1)
				theirs.Write(append(b, endFrame(hello{version: Version}.put(beginFrame(nil, frameHelloDone, 0, 0)), 0)...))
			case frameExec:
				w.exec <- f
			case frameFile:
				w.file <- f
			}
			return nil
		}
		feedAll(d, theirs)
	}()
	c, err := NewClient(testContext(t), host, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return w, c
}

// asked gives a relay before a wicked inside with an execution that has started and a file that is
// being read, and the numbers of both requests.
func asked(t testing.TB) (w *wickedly, o *owners, file, exec uint32, out *os.File) {
	t.Helper()
	w, in := newWicked(t)
	t.Cleanup(func() { in.Close(); w.Close() })
	o = newOwners(t, in)
	c := o.next()
	out, ow := pipeOf(t)
	stdin, sw := pipeOf(t)
	go func() {
		spec := sh("x", "true")
		spec.Files = &[3]*os.File{stdin, ow, nil}
		c.Exec(context.Background(), spec)
		stdin.Close()
		ow.Close()
		sw.WriteString("some input")
	}()
	f := <-w.exec
	exec = f.req
	w.Write(replyFrame(f, execReply{pid: 5, state: StateRunning, streams: 7}))
	go c.ReadFile(context.Background(), "/x", ReadOptions{})
	return w, o, (<-w.file).req, exec, out
}

// What an inside says wrongly ends the conversation with it, and nothing else; what it says about
// things that do not exist does nothing.
func TestRelayHostileInside(t *testing.T) {
	chunk := func(req uint32, n int) []byte {
		return endFrame(append(beginFrame(nil, frameChunk, 0, req), make([]byte, n)...), 0)
	}
	credit := func(req uint32, n uint32) []byte {
		return endFrame(putU32(beginFrame(nil, frameCredit, 0, req), n), 0)
	}
	ended := func(end ExecEnd) []byte {
		return endFrame((&eventMsg{id: "x", kind: EventEnded, end: &end}).put(beginFrame(nil, frameEvent, 0, 0)), 0)
	}
	ack := func(stream uint8, offset int64) []byte {
		return endFrame(ackMsg{id: "x", stream: stream, offset: offset}.put(beginFrame(nil, frameStdinAck, 0, 0)), 0)
	}
	answer := func(req uint32) []byte { return endFrame(beginFrame(nil, frameAnswer, 0, req), 0) }
	for _, tc := range []struct {
		name string
		send func(file, exec uint32) [][]byte
		ends bool
	}{
		{"data beyond the window", func(f, _ uint32) [][]byte {
			return [][]byte{chunk(f, maxChunk), chunk(f, maxChunk), chunk(f, maxChunk), chunk(f, maxChunk), chunk(f, 1)}
		}, true},
		{"data for a command", func(_, e uint32) [][]byte { return [][]byte{chunk(e, 5)} }, false},
		{"data for nobody", func(_, _ uint32) [][]byte { return [][]byte{chunk(77777, 5), credit(77777, 5), answer(77777)} }, false},
		{"credit that was never used", func(f, _ uint32) [][]byte { return [][]byte{credit(f, 1)} }, true},
		{"an empty piece", func(f, _ uint32) [][]byte { return [][]byte{chunk(f, 0)} }, true},
		{"an answer to nothing", func(_, _ uint32) [][]byte { return [][]byte{answer(0)} }, true},
		{"a failure that is none", func(f, _ uint32) [][]byte {
			return [][]byte{endFrame(append(beginFrame(nil, frameFail, 0, f), 9, 9), 0)}
		}, true},
		{"two answers", func(f, e uint32) [][]byte { return [][]byte{answer(f), answer(f), answer(e)} }, false},
		{"input acknowledged that was never sent", func(_, _ uint32) [][]byte { return [][]byte{ack(0, math.MaxInt64)} }, true},
		{"output with a gap", func(_, _ uint32) [][]byte { return [][]byte{outputFrame(5, "x", false)} }, true},
		{"output beyond what is kept", func(_, _ uint32) (list [][]byte) {
			for i := range 20 + MaxUnacked/maxChunk {
				list = append(list, outputFrame(int64(i*maxChunk), string(make([]byte, maxChunk)), false))
			}
			return list
		}, true},
		{"an end beyond all output", func(_, _ uint32) [][]byte { return [][]byte{ended(ExecEnd{Output: [2]int64{math.MaxInt64, 0}})} }, false},
		{"two ends", func(_, _ uint32) [][]byte {
			return [][]byte{ended(ExecEnd{ExitCode: 1}), ended(ExecEnd{ExitCode: 2}), outputFrame(0, "x", true)}
		}, false},
		{"descriptors", func(f, _ uint32) [][]byte { return [][]byte{endFrame(beginFrame(nil, frameAnswer, 1, f), 0)} }, true},
		{"a reset", func(_, _ uint32) [][]byte { return [][]byte{appendReset(nil)} }, true},
		{"a frame of the owner's", func(_, _ uint32) [][]byte { return [][]byte{endFrame(beginFrame(nil, frameShutdown, 0, 9), 0)} }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, o, file, exec, out := asked(t)
			for _, b := range tc.send(file, exec) {
				w.SetWriteDeadline(time.Now().Add(10 * time.Second))
				if _, err := w.Write(b); err != nil {
					break // it is over
				}
			}
			if tc.ends {
				if err := <-o.served; !errors.Is(err, ErrInside) {
					t.Fatal(err)
				}
				o.served <- nil
				return
			}
			// It still works: another output comes through, and the next owner is served.
			if tc.name != "two ends" {
				go w.Write(outputFrame(0, "still", false))
				b := make([]byte, 5)
				if _, err := out.Read(b); err != nil || string(b) != "still" {
					t.Fatal(string(b), err)
				}
			}
			o.next()
		})
	}
}

// Whatever bytes come from inside, nothing panics and nothing is kept without a bound.
func FuzzRelay(f *testing.F) {
	f.Add(endFrame(append(beginFrame(nil, frameChunk, 0, 2), 1, 2, 3), 0))
	f.Add(outputFrame(0, "hello", true))
	f.Add(endFrame(ackMsg{id: "x", offset: 3, closed: true}.put(beginFrame(nil, frameStdinAck, 0, 0)), 0))
	f.Add(endFrame((&eventMsg{id: "x", kind: EventEnded, end: &ExecEnd{Output: [2]int64{9, 0}}}).put(beginFrame(nil, frameEvent, 0, 0)), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, o, _, _, _ := asked(t)
		w.SetWriteDeadline(time.Now().Add(5 * time.Second))
		if _, err := w.Write(b); err != nil {
			return // the conversation is over
		}
		o.last.Close()
		fd, err := dup(o.kept)
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSocket(os.NewFile(uintptr(fd), "owner"))
		if err != nil {
			t.Fatal(err)
		}
		// It serves on, or says that it is over.
		if c, err := NewClient(testContext(t), s, ClientOptions{}); err == nil {
			c.Close()
		} else if errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}
