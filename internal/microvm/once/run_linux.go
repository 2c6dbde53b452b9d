package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/microvm/machine"
)

// bootWithin bounds the start of a machine: emulated, on a machine with much else to
// do, it takes many times its usual three seconds.
const bootWithin = 120 * time.Second

// Run runs the command to its end and gives its exit code as a shell tells it.
func Run(c Config) int {
	e := run(c)
	if b, err := json.Marshal(e); err == nil && c.End != "" {
		if err := os.WriteFile(c.End, b, 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "bailey-vmm:", err)
		}
	}
	return e.ExitCode
}

// lost is the end of a machine that gave none.
func lost(what string, err error, log *tail) End {
	detail := what
	if err != nil {
		detail += ": " + err.Error()
	}
	if said := log.String(); said != "" {
		detail += "; " + said
	}
	return End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: plain(detail)}
}

func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return ' '
		}
		return r
	}, s)
	return s[:min(len(s), 1000)]
}

func run(c Config) End {
	sigs := make(chan os.Signal, 64)
	signal.Notify(sigs)
	defer signal.Stop(sigs)
	log := &tail{}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return lost("make the stream to the machine", err, log)
	}
	unix.SetNonblock(pair[0], true)
	stream, theirs := os.NewFile(uintptr(pair[0]), "agent"), os.NewFile(uintptr(pair[1]), "agent")
	m, err := machine.Start(c.Machine, theirs, log)
	theirs.Close()
	if err != nil {
		stream.Close()
		return lost("start the virtual machine", err, log)
	}
	defer func() {
		m.Kill()
		m.Wait()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), bootWithin)
	client, err := guest.NewClient(ctx, stream, guest.ClientOptions{Framed: true})
	cancel()
	if err != nil {
		return lost("the virtual machine did not start", err, log)
	}
	defer client.Close()
	e, err := command(c, client, sigs)
	if err != nil {
		return lost("the virtual machine was lost", err, log)
	}
	// What is on its way to the files of the host is there already; what a process
	// has mapped and changed is not.
	ctx, cancel = context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client.Shutdown(ctx, 0)
	return e
}

// command runs the command and carries its input and output.
func command(c Config, client *guest.Client, sigs <-chan os.Signal) (End, error) {
	ctx := context.Background()
	spec := guest.ExecSpec{ID: "run", Argv: c.Command, Env: c.Env, Dir: c.Workdir, User: &guest.User{UID: c.UID, GID: c.GID}, Stdin: true}
	if c.Terminal {
		spec.Stdin = false
		spec.Terminal = &guest.Window{Rows: 24, Cols: 80}
		if w, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
			spec.Terminal = &guest.Window{Rows: w.Row, Cols: w.Col, XPixel: w.Xpixel, YPixel: w.Ypixel}
		}
		restore := raw(0)
		defer restore()
	}
	p, err := client.Exec(ctx, spec)
	if err != nil {
		var n *guest.NotStarted
		if errors.As(err, &n) {
			e := End{Reason: bailey.EndNotStarted, ExitCode: 126, Detail: n.Errno.Error()}
			if n.Step != "execve" {
				e.Detail = plain(n.Error())
			}
			if n.Errno == syscall.ENOENT && n.Step == "execve" {
				e.ExitCode = 127
			}
			return e, nil
		}
		return End{}, err
	}
	defer p.Close()
	go func() { // a command need not read its input to the end
		io.Copy(p.Stdin(), os.Stdin)
		p.Stdin().Close()
	}()
	var out sync.WaitGroup
	for i, o := range []*guest.Output{p.Stdout(), p.Stderr()} {
		if o != nil {
			out.Go(func() { carry(p, o, []*os.File{os.Stdout, os.Stderr}[i]) })
		}
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-sigs:
				forward(ctx, p, c.Terminal, s.(syscall.Signal))
			case <-done:
				return
			}
		}
	}()
	end, err := p.Wait(ctx)
	if err != nil {
		return End{}, err
	}
	written := make(chan struct{})
	go func() { out.Wait(); close(written) }()
	select {
	case <-written:
	case <-time.After(leftWithin): // processes that it left behind have its output
	}
	e := end.End()
	return End{Reason: e.Reason, ExitCode: e.ExitCode, Signal: e.Signal}, nil
}

// leftWithin is how long output that goes on after the command's end is carried.
const leftWithin = 200 * time.Millisecond

// carry writes an output; when nobody reads it any more the command is told as it
// would be by a pipe.
func carry(p *guest.Process, o *guest.Output, to *os.File) {
	if _, err := io.Copy(to, o); err != nil && errors.Is(err, syscall.EPIPE) {
		p.Signal(context.Background(), syscall.SIGPIPE, guest.ScopeGroup)
		io.Copy(io.Discard, o)
	}
}

// forward hands a signal on.
func forward(ctx context.Context, p *guest.Process, terminal bool, s syscall.Signal) {
	switch s {
	case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE: // this process's own
	case syscall.SIGWINCH:
		if w, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); terminal && err == nil {
			p.Resize(ctx, guest.Window{Rows: w.Row, Cols: w.Col, XPixel: w.Xpixel, YPixel: w.Ypixel})
		}
	default:
		p.Signal(ctx, s, guest.ScopeGroup)
	}
}

// raw makes a terminal hand over every byte: the one inside gives them their meaning.
func raw(fd int) (restore func()) {
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {}
	}
	now := *was
	now.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	now.Oflag &^= unix.OPOST
	now.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	now.Cflag = now.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(fd, unix.TCSETS, &now) != nil {
		return func() {}
	}
	return func() { unix.IoctlSetTermios(fd, unix.TCSETS, was) }
}

// tail keeps the end of what the monitor says.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b = append(t.b, p...); len(t.b) > 4096 {
		t.b = t.b[len(t.b)-4096:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b))
}
