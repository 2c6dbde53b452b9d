//go:build linux

package control

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

const patience = 20 * time.Second

// fakeGate answers as it is told.
type fakeGate struct {
	mu       sync.Mutex
	opened   []Open
	received map[string][]string // what came through a sandbox's listeners
	open     func(Open) (*Opened, error)
}

func (g *fakeGate) Check(_ context.Context, p Policy) (Checked, error) {
	return Checked{Policy: strings.Join(p.Allow, ","), Session: Session{MinLevel: "container"}}, nil
}

func (g *fakeGate) Open(_ context.Context, o Open, names *os.File) (*Opened, error) {
	if names != nil {
		defer names.Close()
		if _, err := names.WriteString("kept"); err != nil {
			return nil, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = append(g.opened, o)
	return g.open(o)
}

func (g *fakeGate) Attach(_ context.Context, sandbox string, tcp, udp *os.File) error {
	defer tcp.Close()
	defer udp.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range []*os.File{tcp, udp} {
		b, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		g.received[sandbox] = append(g.received[sandbox], string(b))
	}
	return nil
}

func (g *fakeGate) Update(_ context.Context, sandbox string, p Policy) (Updated, error) {
	return Updated{Policy: sandbox + ":" + strings.Join(p.Allow, ",")}, nil
}

func (g *fakeGate) Detach(_ context.Context, sandbox string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.received[sandbox] = append(g.received[sandbox], "detached")
	return nil
}

func (g *fakeGate) Used(context.Context) map[string]Usage {
	return map[string]Usage{"a": {Sent: 1, Activity: 2, Open: 3}}
}

func (g *fakeGate) Revoke(_ context.Context, sandbox, secret string) (json.RawMessage, error) {
	if secret == "KEY" {
		return json.RawMessage(`"revoked"`), nil
	}
	return nil, bailey.Errorf(bailey.CodeNotFound, "revoke "+secret, "look", "%s has none", sandbox)
}

func (g *fakeGate) Close(context.Context, string) (Closed, error) { return Closed{Requests: 3}, nil }

// join connects a client with a gate.
func join(t *testing.T, events Events, open func(Open) (*Opened, error)) (*Client, *Peer, *fakeGate) {
	t.Helper()
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	g := &fakeGate{received: map[string][]string{}, open: open}
	p, err := NewPeer(theirs)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(ours, events)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(g) }()
	t.Cleanup(func() {
		c.Hangup()
		select {
		case <-served:
		case <-time.After(patience):
			t.Error("the gate goes on without its starter")
		}
	})
	return c, p, g
}

func temporary(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func pipeWith(t *testing.T, text string) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return r
}

func opens(content ...string) func(Open) (*Opened, error) {
	return func(o Open) (*Opened, error) {
		out := &Opened{Policy: "sha256:1", Env: []string{"TOKEN=placeholder"}, Descriptions: []string{"d"}}
		for i, c := range content {
			out.Files = append(out.Files, File{Path: fmt.Sprintf("/f%d", i), Mode: 0o644, Content: []byte(c)})
		}
		return out, nil
	}
}

func TestConversation(t *testing.T) {
	big := strings.Repeat("certificate\n", 100000)
	denied, saved := make(chan Denial, 8), make(chan string, 1)
	c, p, g := join(t, Events{
		Saved:  func(sandbox string, s json.RawMessage) { saved <- sandbox + " " + string(s) },
		Denied: func(_ string, d Denial) { denied <- d },
		Ask:    func(_ context.Context, q Question) Answer { return Answer{ForSession, q.What, "here"} },
	}, opens(big, "", "small"))
	ctx := t.Context()
	asked := Open{Sandbox: "a", Level: "process", Policy: Policy{Allow: []string{"x.test"}, Document: &Document{"p", []byte{0, 255}}},
		Ask: Ask{true, true, time.Second}, Root: Root{Bundles: []File{{Path: "/b", Content: []byte("roots")}, {Path: "/c", Content: []byte("roots")}}, Stores: []string{"/s"}}, Saved: json.RawMessage(`{"x":1}`)}
	names := temporary(t)
	o, err := c.Open(ctx, asked, names)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(names.Name()); err != nil || string(text) != "kept" {
		t.Errorf("the file of names has %q, %v", text, err)
	}
	asked.Names = true
	asked.Root.Bundles[0].Size, asked.Root.Bundles[1].Size, asked.Root.Bundles[1].Same = 5, 5, 1
	g.mu.Lock()
	if !reflect.DeepEqual(g.opened, []Open{asked}) {
		t.Errorf("the gate was asked for %+v", g.opened)
	}
	g.mu.Unlock()
	if len(o.Files) != 3 || string(o.Files[0].Content) != big || len(o.Files[1].Content) != 0 || string(o.Files[2].Content) != "small" || o.Env[0] != "TOKEN=placeholder" {
		t.Errorf("opened: %d files, %v", len(o.Files), o.Env)
	}
	if _, err := c.Open(ctx, asked, nil); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("opened twice: %v", err)
	}
	if _, err := c.Open(ctx, Open{Sandbox: "b"}, nil); err != nil {
		t.Errorf("a second sandbox: %v", err)
	}
	tcp, udp := pipeWith(t, "tcp"), pipeWith(t, "udp")
	defer tcp.Close()
	defer udp.Close()
	err = c.Attach(ctx, "b", tcp, udp)
	g.mu.Lock()
	if err != nil || !reflect.DeepEqual(g.received["b"], []string{"tcp", "udp"}) {
		t.Errorf("attached: %q, %v", g.received, err)
	}
	g.mu.Unlock()
	if u, err := c.Update(ctx, "a", Policy{Allow: []string{"y"}}); err != nil || u.Policy != "a:y" {
		t.Errorf("updated: %+v, %v", u, err)
	}
	if saved, err := c.Revoke(ctx, "a", "KEY"); err != nil || string(saved) != `"revoked"` {
		t.Errorf("revoked: %s, %v", saved, err)
	}
	if used, err := c.Used(ctx); err != nil || used["a"] != (Usage{Sent: 1, Activity: 2, Open: 3}) {
		t.Errorf("used: %+v, %v", used, err)
	}
	err = c.Detach(ctx, "b")
	g.mu.Lock()
	if err != nil || !reflect.DeepEqual(g.received["b"], []string{"tcp", "udp", "detached"}) {
		t.Errorf("detached: %q, %v", g.received, err)
	}
	g.mu.Unlock()
	p.Saved("a", json.RawMessage(`{"y":2}`))
	select {
	case got := <-saved:
		if got != `a {"y":2}` {
			t.Errorf("told to save %s", got)
		}
	case <-time.After(patience):
		t.Fatal("not told to save")
	}
	_, err = c.Revoke(ctx, "a", "TOKEN")
	var be *bailey.Error
	if !errors.As(err, &be) || be.Code != bailey.CodeNotFound || be.What != "revoke TOKEN" || be.Fix != "look" {
		t.Errorf("an error of the gate came as %v", err)
	}
	if checked, err := c.Check(ctx, Policy{Allow: []string{"z"}}); err != nil || checked.Policy != "z" || checked.Session.MinLevel != "container" {
		t.Errorf("checked: %+v, %v", checked, err)
	}
	if a, err := p.Ask(ctx, Question{What: "GET /"}); err != nil || a != (Answer{ForSession, "GET /", "here"}) {
		t.Errorf("answered: %+v, %v", a, err)
	}
	for range 5 {
		p.Denied(Denial{Sandbox: "a", What: "GET /", Reason: "no_rule"})
	}
	p.Denied(Denial{Sandbox: "a", What: "GET /other", Reason: "no_rule"})
	p.Denied(Denial{Sandbox: "nobody", What: "GET /", Reason: "no_rule"})
	for _, want := range []string{"GET /", "GET /other"} {
		select {
		case d := <-denied:
			if d.What != want {
				t.Errorf("told of %q, want %q", d.What, want)
			}
		case <-time.After(patience):
			t.Fatal("not told of a denial")
		}
	}
	closed, err := c.Close(ctx, "a")
	if err != nil || closed.Requests != 3 || len(closed.Denials) != 2 || closed.Denials[0].Count != 5 || closed.Denials[1].Count != 1 {
		t.Errorf("closed: %+v, %v", closed, err)
	}
	if len(denied) > 0 {
		t.Errorf("told of %+v", <-denied)
	}
}

// A sandbox that is refused again and again, each time for something else,
// fills nobody's memory.
func TestDenialsAreBounded(t *testing.T) {
	told := 0 // by one goroutine, which is done when Close is answered
	c, p, _ := join(t, Events{Denied: func(string, Denial) { told++ }}, opens())
	if _, err := c.Open(t.Context(), Open{Sandbox: "a"}, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 10 * maxDenials {
		p.Denied(Denial{Sandbox: "a", What: fmt.Sprint(i)})
	}
	closed, err := c.Close(t.Context(), "a")
	if err != nil || len(closed.Denials) != maxDenials || closed.Further != 9*maxDenials || told != maxDenials {
		t.Errorf("%d kept, %d further, told of %d, %v", len(closed.Denials), closed.Further, told, err)
	}
}

// When the gate is gone, whoever waits for it hears of it.
func TestLostGate(t *testing.T) {
	blocked, over := make(chan struct{}), make(chan struct{})
	c, p, _ := join(t, Events{}, func(Open) (*Opened, error) { close(blocked); <-over; return nil, errors.New("late") })
	go func() { <-blocked; p.link.fail(nil); close(over) }()
	if _, err := c.Open(t.Context(), Open{Sandbox: "a"}, nil); bailey.CodeOf(err) != bailey.CodeSandboxLost {
		t.Errorf("opened: %v", err)
	}
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Error("the client does not know")
	}
	if _, err := c.Close(t.Context(), "a"); bailey.CodeOf(err) != bailey.CodeSandboxLost {
		t.Errorf("closed: %v", err)
	}
}

func TestAnswerThatNobodyWaitsFor(t *testing.T) {
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	c, _, _ := join(t, Events{}, func(o Open) (*Opened, error) {
		entered <- struct{}{}
		<-leave
		return opens("x")(o)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	if _, err := c.Open(ctx, Open{Sandbox: "a"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("opened: %v", err)
	}
	close(leave)
	if _, err := c.Check(t.Context(), Policy{}); err != nil {
		t.Errorf("the connection is of no more use: %v", err)
	}
}

// A question that nobody waits for any more is taken back.
func TestWithdrawnQuestion(t *testing.T) {
	asked, over := make(chan bool), make(chan bool)
	_, p, _ := join(t, Events{Ask: func(ctx context.Context, _ Question) Answer {
		close(asked)
		<-ctx.Done()
		close(over)
		return Answer{}
	}}, opens())
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := p.Ask(ctx, Question{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case <-over:
	case <-time.After(patience):
		t.Error("it is still asked")
	}
}

// raw is the other end, for saying what no gate would say.
func raw(t *testing.T) (*Client, int) {
	t.Helper()
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(ours, Events{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Hangup(); theirs.Close() })
	return c, int(theirs.Fd())
}

func message(text string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

// Garbage ends the connection, and descriptors that come with it are closed.
func TestGarbage(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []byte
		files int
	}{
		"no JSON":               {message("nonsense"), 0},
		"an unknown field":      {message(`{"v":1,"op":"reply","more":1}`), 0},
		"another version":       {message(`{"v":2,"op":"reply"}`), 0},
		"no operation":          {message(`{"v":1}`), 0},
		"an unknown event":      {message(`{"v":1,"op":"hello"}`), 0},
		"a bad event":           {message(`{"v":1,"op":"denied","body":{"x":1}}`), 0},
		"something behind":      {message(`{"v":1,"op":"reply"}{}`), 0},
		"an empty message":      {message(""), 0},
		"a huge message":        {[]byte{0xff, 0xff, 0xff, 0xff}, 0},
		"files unannounced":     {message(`{"v":1,"op":"denied","body":{"what":"","reason":"","why":""}}`), 2},
		"files that are absent": {message(`{"v":1,"op":"denied","files":1,"body":{"what":"","reason":"","why":""}}`), 0},
		"too many files":        {message(`{"v":1,"op":"denied","files":33}`), 0},
		"negative files":        {message(`{"v":1,"op":"denied","files":-1}`), 0},
	} {
		t.Run(name, func(t *testing.T) {
			client, fd := raw(t)
			var oob []byte
			var kept *os.File
			if c.files > 0 {
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				kept = r
				fds := make([]int, c.files)
				for i := range fds {
					fds[i] = int(w.Fd())
				}
				oob = unix.UnixRights(fds...)
				defer w.Close()
				if err := unix.Sendmsg(fd, c.bytes, oob, nil, 0); err != nil {
					t.Fatal(err)
				}
				w.Close()
			} else if err := unix.Sendmsg(fd, c.bytes, nil, nil, 0); err != nil {
				t.Fatal(err)
			}
			select {
			case <-client.Done():
			case <-time.After(patience):
				t.Fatal("the connection goes on")
			}
			if kept != nil { // end of file says that no copy is left
				kept.SetReadDeadline(time.Now().Add(patience))
				if n, err := kept.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("a descriptor is still open: %v", err)
				}
			}
		})
	}
}

// A file whose content the gate could still change is refused.
func TestFilesAreSealed(t *testing.T) {
	client, fd := raw(t)
	opened := make(chan error, 1)
	go func() {
		_, err := client.Open(context.Background(), Open{Sandbox: "a"}, nil)
		opened <- err
	}()
	unsealed, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(unsealed)
	text := message(`{"v":1,"op":"reply","id":1,"files":1,"body":{"body":{"policy":"p","files":[{"path":"/x","mode":420,"size":0}]}}}`)
	if _, err := io.ReadFull(os.NewFile(uintptr(dup(t, fd)), "raw"), make([]byte, 4)); err != nil { // it has asked
		t.Fatal(err)
	}
	if err := unix.Sendmsg(fd, text, unix.UnixRights(unsealed), nil, 0); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-opened:
		if err == nil || !strings.Contains(err.Error(), "not sealed") {
			t.Errorf("opened: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("no answer")
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// FuzzDecode feeds the reader what a gate that was taken over might send.
func FuzzDecode(f *testing.F) {
	f.Add(message(`{"v":1,"op":"open","id":1,"body":{"sandbox":"a"}}`))
	f.Add(message(`{"v":1,"op":"reply","id":18446744073709551615,"files":3}`))
	f.Add(message(`{"v":1,"op":"denied","body":{"what":"GET /","reason":"r","why":"w"}}`))
	f.Add([]byte{0, 0, 0})
	f.Add([]byte{0, 64, 0, 0, '{'})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for {
			e, err := decode(nil, r)
			if err != nil {
				return
			}
			if e.Version != Version || e.Op == "" || e.Files < 0 || e.Files > maxFiles {
				t.Fatalf("accepted %+v", e)
			}
			for _, into := range []any{&Opened{}, &Closed{}, &Denial{}, &Question{}, &reply{}, &Open{}} {
				_ = strict(e.Body, into) // it must not fall over
			}
		}
	})
}

// TestSameFiles: what is said to be like another file is like one that has come.
func TestSameFiles(t *testing.T) {
	sealedFile := func() *os.File {
		f, err := seal([]byte("text"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first := File{Path: "/a", Size: 4}
	for name, c := range map[string]struct {
		files []File
		came  int
		good  bool
	}{
		"one for two":  {[]File{first, {Path: "/b", Size: 4, Same: 1}}, 1, true},
		"of another":   {[]File{first, {Path: "/b", Size: 4, Same: 1}, {Path: "/c", Size: 4, Same: 2}}, 1, true},
		"itself":       {[]File{{Path: "/a", Size: 4, Same: 1}}, 0, false},
		"a later one":  {[]File{{Path: "/a", Size: 4, Same: 2}, first}, 1, false},
		"below none":   {[]File{first, {Path: "/b", Size: 4, Same: -1}}, 1, false},
		"another size": {[]File{first, {Path: "/b", Size: 3, Same: 1}}, 1, false},
		"too few":      {[]File{first, {Path: "/b", Size: 4}}, 1, false},
		"too many":     {[]File{first}, 2, false},
	} {
		var came []*os.File
		for range c.came {
			came = append(came, sealedFile())
		}
		err := unpack(c.files, came)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range c.files {
			if c.good && string(f.Content) != "text" {
				t.Errorf("%s: %s is %q", name, f.Path, f.Content)
			}
		}
	}
}
