//go:build linux && (amd64 || arm64)

package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	bailey "github.com/bailey-sandbox/bailey"
)

// recorder keeps what the owner sends.
type recorder struct {
	io.ReadWriteCloser
	mu  sync.Mutex
	out bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	r.out.Write(p)
	r.mu.Unlock()
	return r.ReadWriteCloser.Write(p)
}

// wires is a transport that outlives owners, as virtio-serial does: each owner
// writes to it and reads from it, and when it dies the bytes stay.
type wires struct {
	host  net.Conn
	inner net.Conn
}

// handle is one owner's use of wires: closing it leaves the wires open.
type handle struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
	got    chan []byte
	rest   []byte
}

func (h *handle) Read(p []byte) (int, error) {
	if len(h.rest) == 0 {
		select {
		case b, ok := <-h.got:
			if !ok {
				return 0, io.EOF
			}
			h.rest = b
		case <-h.closed:
			return 0, io.ErrClosedPipe
		}
	}
	n := copy(p, h.rest)
	h.rest = h.rest[n:]
	return n, nil
}

func (h *handle) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// The owner dies after every byte of a recorded conversation in turn; the next
// owner goes on with the executions, and no command ran twice.
func TestCutAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	count := filepath.Join(dir, "count")
	spec := sh("cmd", `echo run >>`+count+`; read x; echo "got $x"; echo err >&2; exit 9`)
	spec.Stdin = true
	conversation := func(c *Client) error {
		p, err := c.Exec(testContext(t), spec)
		if err != nil {
			return err
		}
		if !p.Existing() || p.Stdin() != nil {
			io.WriteString(p.Stdin(), "input\n")
			p.Stdin().Close()
		}
		out, _ := io.ReadAll(p.Stdout())
		errs, _ := io.ReadAll(p.Stderr())
		end, err := p.Wait(testContext(t))
		if err != nil {
			return err
		}
		if string(out) != "got input\n" || string(errs) != "err\n" || end.ExitCode != 9 {
			return fmt.Errorf("%q %q %+v", out, errs, end)
		}
		return nil
	}
	serve := func() (*Server, *wires, chan []byte) {
		s, err := NewServer(ServerOptions{Root: dir})
		if err != nil {
			t.Fatal(err)
		}
		a, b := net.Pipe()
		w := &wires{host: a, inner: b}
		served := make(chan struct{})
		go func() { s.Serve(b); close(served) }()
		got := make(chan []byte, 1<<16)
		go func() {
			defer close(got)
			for {
				buf := make([]byte, 4096)
				n, err := a.Read(buf)
				if err != nil {
					return
				}
				got <- buf[:n]
			}
		}()
		t.Cleanup(func() {
			a.Close()
			<-served
			s.Close()
		})
		return s, w, got
	}
	_, w, got := serve()
	rec := &recorder{ReadWriteCloser: &handle{Conn: w.host, closed: make(chan struct{}), got: got}}
	c, err := NewClient(testContext(t), rec, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := conversation(c); err != nil {
		t.Fatal(err)
	}
	c.Close()
	rec.mu.Lock() // what the client still had to say may be on its way
	recorded := bytes.Clone(rec.out.Bytes())
	rec.mu.Unlock()
	if b, _ := os.ReadFile(count); string(b) != "run\n" {
		t.Fatalf("%q", b)
	}
	for cut := range len(recorded) + 1 {
		os.Remove(count)
		s, w, got := serve()
		if _, err := w.host.Write(recorded[:cut]); err != nil {
			t.Fatal(err)
		}
		h := &handle{Conn: w.host, closed: make(chan struct{}), got: got}
		c, err := NewClient(testContext(t), h, ClientOptions{})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		// Input that was received is not asked for again: the new owner knows from
		// the answer how far the first one came.
		p, err := c.Exec(testContext(t), spec)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if f := p.fed; f.sent < 6 {
			io.WriteString(p.Stdin(), "input\n"[f.sent:])
		}
		p.Stdin().Close()
		out, _ := io.ReadAll(p.Stdout())
		errs, _ := io.ReadAll(p.Stderr())
		end, err := p.Wait(testContext(t))
		if err != nil || end.ExitCode != 9 {
			t.Fatalf("cut at %d: %v %+v", cut, err, end)
		}
		// Output that the first owner acknowledged is gone; all else is here.
		if !bytes.HasSuffix([]byte("got input\n"), out) || !bytes.HasSuffix([]byte("err\n"), errs) ||
			int64(len(out)) != 10-(p.Stdout().Offset()-int64(len(out))) {
			t.Fatalf("cut at %d: %q %q", cut, out, errs)
		}
		if b, _ := os.ReadFile(count); string(b) != "run\n" {
			t.Fatalf("cut at %d: it ran as %q", cut, b)
		}
		if list, err := s.statuses(""); err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		c.Close()
		w.host.Close()
	}
}

// A new owner on the same sandbox goes on at its own offset.
func TestReattachAtOffset(t *testing.T) {
	s := startSandbox(t)
	c := s.client(true)
	spec := sh("r", "i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done; exit 6")
	spec.ManualAck = true
	p, err := c.Exec(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	if _, err := io.CopyN(&all, p.Stdout(), 123_457); err != nil {
		t.Fatal(err)
	}
	// The first owner loses its connection without a word: here, its goroutines
	// stop reading, and a second conversation starts on the same wires.
	f, err := s.socket.File()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	again, err := NewSocket(f)
	if err != nil {
		t.Fatal(err)
	}
	c2, err := NewClient(testContext(t), stream{again}, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c2.Close()
	p2, err := c2.Attach(testContext(t), "r", AttachOptions{Offsets: [2]int64{123_457, 0}})
	if err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(p2.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	all.Write(rest)
	var want bytes.Buffer
	for i := range 40000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if !bytes.Equal(all.Bytes(), want.Bytes()) {
		t.Fatalf("%d bytes of %d", all.Len(), want.Len())
	}
	if end, err := p2.Wait(testContext(t)); err != nil || end.ExitCode != 6 {
		t.Fatal(end, err)
	}
}

// What a hostile sandbox sends ends the conversation, and takes no memory.
func TestHostileGuest(t *testing.T) {
	hi := func(nonce uint64, version uint16) []byte {
		b := appendReset(nil)
		b = append(b, endFrame(putU64(beginFrame(nil, frameResetDone, 0, 0), nonce), 0)...)
		return append(b, endFrame(hello{version: version}.put(beginFrame(nil, frameHelloDone, 0, 0)), 0)...)
	}
	answer := func(f frame) []byte {
		m := execReply{pid: 5, state: StateRunning, streams: 6}
		return endFrame(m.put(beginFrame(nil, frameAnswer, 0, f.req)), 0)
	}
	output := func(offset int64, data []byte) []byte {
		m := bytesMsg{id: "x", stream: 1, offset: offset, data: data}
		return endFrame(m.put(beginFrame(nil, frameOutput, 0, 0)), 0)
	}
	big := make([]byte, maxChunk)
	for name, tc := range map[string]struct {
		version uint16
		send    func(f frame) []byte
		opens   bool
	}{
		"another version":  {version: 9},
		"an unknown frame": {Version, func(f frame) []byte { return endFrame(beginFrame(nil, 250, 0, 0), 0) }, true},
		"a frame of ours":  {Version, func(f frame) []byte { return endFrame(beginFrame(nil, frameExec, 0, 0), 0) }, true},
		"a length too large": {Version, func(f frame) []byte {
			return putU32(append(make([]byte, 0, 12), frameStart, byte(frameOutput), 0, 0, 0, 0, 0, 0), 1<<30)
		}, true},
		"descriptors unsent":  {Version, func(f frame) []byte { return endFrame(beginFrame(nil, frameAnswer, 1, f.req), 0) }, true},
		"an answer cut short": {Version, func(f frame) []byte { return endFrame(append(beginFrame(nil, frameAnswer, 0, f.req), 1), 0) }, true},
		"output with a gap": {Version, func(f frame) []byte {
			return append(answer(f), append(output(0, []byte("x")), output(5, []byte("y"))...)...)
		}, true},
		"output again": {Version, func(f frame) []byte {
			return append(answer(f), append(output(0, []byte("x")), output(0, []byte("y"))...)...)
		}, true},
		"output without end": {Version, func(f frame) []byte {
			b := answer(f)
			for i := range 20 {
				b = append(b, output(int64(i*len(big)), big)...)
			}
			return b
		}, true},
		"a reset unasked": {Version, func(f frame) []byte { return appendReset(nil) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			host, guest := net.Pipe()
			defer guest.Close()
			go func() {
				d := newDecoder(maxFrameToGuest)
				d.onReset, d.onLost = func() {}, func(string) {}
				d.onFrame = func(f frame) error {
					switch f.typ {
					case frameReset:
						n, _ := parseU64(f.payload)
						b := hi(n, tc.version)
						go guest.Write(b)
					case frameExec:
						b := tc.send(f)
						go guest.Write(b)
					}
					return nil
				}
				feedAll(d, guest)
			}()
			c, err := NewClient(testContext(t), host, ClientOptions{})
			if !tc.opens {
				if bailey.CodeOf(err) != bailey.CodeProtocol {
					t.Fatal(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c.Exec(testContext(t), sh("x", "true"))
			<-c.Done()
			if err := c.Err(); bailey.CodeOf(err) != bailey.CodeProtocol {
				t.Fatal(err)
			}
		})
	}
}

// What a hostile owner sends does not end the server, and the next owner finds
// it working.
func TestHostileOwner(t *testing.T) {
	s, err := NewServer(ServerOptions{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rnd := rand.New(rand.NewSource(1))
	for i := range 300 {
		host, guest := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- s.Serve(guest) }()
		go io.Copy(io.Discard, host)
		b := append(appendReset(nil), endFrame(putU64(beginFrame(nil, frameReset, 0, 0), 1), 0)...)
		b = append(b, endFrame(hello{version: 1}.put(beginFrame(nil, frameHello, 0, 0)), 0)...)
		junk := make([]byte, rnd.Intn(200))
		rnd.Read(junk)
		b = append(b, endFrame(append(beginFrame(nil, frameType(i%140), i%4, 3), junk...), 0)...)
		host.Write(b)
		host.Close()
		if err := <-served; err == nil || errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	host, guest := net.Pipe()
	go s.Serve(guest)
	c, err := NewClient(testContext(t), host, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run(t, c, "works", "true")
}

func FuzzServer(f *testing.F) {
	s, err := NewServer(ServerOptions{Root: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(endFrame(append(beginFrame(nil, frameStatus, 0, 1), 1, 0, 0, 0, 'a'), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &session{s: s, l: newLink(plain{nopCloser{}}, maxFrameToGuest), ops: map[uint32]*fileOp{}, open: true}
		c.l.dec.onFrame = func(fr frame) error {
			if fr.typ == frameExec || fr.typ == frameClock || fr.typ == frameEntropy || fr.typ == frameShutdown || fr.typ == frameFile {
				return nil // these act on the machine that fuzzes
			}
			return c.frame(fr)
		}
		c.l.dec.onReset, c.l.dec.onLost, c.l.dec.lost = c.reset, func(string) {}, false
		c.l.dec.feed(b)
		c.detach()
	})
}

type nopCloser struct{}

func (nopCloser) Read([]byte) (int, error)    { return 0, io.EOF }
func (nopCloser) Write(p []byte) (int, error) { return len(p), nil }
func (nopCloser) Close() error                { return nil }
