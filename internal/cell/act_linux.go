package cell

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// actWithin bounds an act that names no time.
const actWithin = 30 * time.Second

// answer does what was asked and answers.
func (s *server) answer(conn *seqpacket, b []byte) {
	a, fd := Answer{Version: ControlVersion}, -1
	var after func()
	r, err := ParseRequest(b)
	if err == nil {
		within := actWithin
		if r.Within > 0 {
			within = time.Duration(r.Within) * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		switch r.Act {
		case ActState:
			v, _ := s.relay.Inside().PeerVersion()
			a.State = &State{Inner: s.in.pid, Since: s.born.Unix(), Guest: int(v), Log: plainText(s.in.log.last())}
		case ActDial:
			fd, after, err = s.dial(ctx, r.Port)
		case ActRun:
			a.Ran, err = s.run(ctx, r)
		default:
			err = bailey.Errorf(bailey.CodeNotAvailable, "do what the cell was asked for", "", "it is of a version that does not know it")
		}
	}
	if err != nil {
		a.Failed = faultOf(err)
	}
	if b, err := encode(a); err == nil {
		conn.send(b, fd) // who asked may be gone
	}
	if fd >= 0 {
		unix.Close(fd)
	}
	if after != nil {
		after() // also when nobody took the answer: the other end is closed then
	}
}

func faultOf(err error) *Fault {
	f := &Fault{Code: bailey.CodeOf(err), Why: plainText(err.Error()), Refused: errors.Is(err, syscall.ECONNREFUSED)}
	f.Why = f.Why[:min(len(f.Why), maxText)]
	if f.Code == "" {
		f.Code = bailey.CodeInternal
	}
	return f
}

// plainText leaves out what is no text. Three bytes of JSON at most come of each byte that stays.
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}

// run runs a program of the cell.
func (s *server) run(ctx context.Context, r Request) (*Ran, error) {
	const what = "run a program of the cell"
	if len(r.Argv) == 0 || !strings.HasPrefix(r.Argv[0], "/") {
		return nil, bailey.Errorf(bailey.CodeUsage, what, "name it by its path", "it is no absolute path")
	}
	fail := func(err error) error { return bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err) }
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, fail(err)
	}
	defer null.Close()
	out, w, err := os.Pipe()
	if err != nil {
		return nil, fail(err)
	}
	defer out.Close()
	pid, ended, err := s.kids.start(r.Argv, r.Env, "", []uintptr{null.Fd(), w.Fd(), w.Fd()})
	w.Close()
	if err != nil {
		return nil, fail(err)
	}
	read := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(out, maxOutput))
		io.Copy(io.Discard, out)
		read <- b
	}()
	var ws syscall.WaitStatus
	select {
	case ws = <-ended:
	case <-ctx.Done():
		unix.Kill(pid, syscall.SIGKILL)
		<-ended
		return nil, bailey.Errorf(bailey.CodeNotAvailable, what, "give it more time", "it has not ended in time: %w", ctx.Err())
	}
	// What it has left behind may have its output open: that is not waited for.
	out.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	return &Ran{Code: exitCode(ws), Output: plainText(string(<-read))}, nil
}
