package client

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/cli/values"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// execFlags are what exec and shell share.
type execFlags struct {
	api.ExecSpec
	env            []string
	timeout, grace time.Duration
}

func (f *execFlags) add(inv *invocation) {
	fs := inv.Flags
	fs.StringVar(&f.ID, "id", "", "what it is called; the same id again gives the same command and starts nothing")
	fs.StringArrayVar(&f.env, "env", nil, "set NAME=VALUE, or pass NAME on")
	fs.StringVar(&f.Dir, "workdir", "", "the folder it starts in")
	fs.StringVar(&f.User, "user", "", "who it runs as: UID[:GID] or a name")
	fs.Var(values.Duration{To: &f.timeout}, "timeout", "end it and all it started after this time")
	fs.Var(values.Duration{To: &f.grace}, "grace", "how long it has between SIGTERM and SIGKILL then")
	fs.Var(values.Bytes{To: &f.Output}, "output", "what is kept of each stream; default 64M, the oldest is dropped")
	fs.BoolVar(&f.Checkpoint, "checkpoint", false, "a checkpoint before it")
	fs.Int64Var(&f.Generation, "generation", 0, "fail if the sandbox was started anew since this generation")
}

func (f *execFlags) spec(args []string) (api.ExecSpec, error) {
	s := f.ExecSpec
	s.Args, s.Timeout, s.Grace = args, api.Duration(f.timeout), api.Duration(f.grace)
	var err error
	s.Env, err = environment(f.env)
	return s, err
}

func execCommand(inv *invocation) (int, error) {
	var f execFlags
	f.add(inv)
	inv.Flags.BoolVarP(&f.Stdin, "stdin", "i", false, "give it this program's input; without it, it reads nothing")
	tty := inv.Flags.BoolP("tty", "t", false, "give it a terminal")
	detach := inv.Flags.BoolP("detach", "d", false, "print its id and do not wait")
	shell := inv.Flags.Bool("shell", false, "CMD is a line for sh")
	before, cmd, err := inv.split()
	if err != nil {
		return 0, err
	}
	if len(before) > 1 && len(cmd) == 0 {
		before, cmd = before[:1], before[1:]
	}
	if len(before) != 1 || len(cmd) == 0 {
		return 0, bailey.Errorf(bailey.CodeUsage, "run bailey exec", "call it as bailey exec SANDBOX -- CMD...", "a sandbox and a command are needed")
	}
	spec, err := f.spec(cmd)
	if err != nil {
		return 0, err
	}
	spec.Shell = *shell
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	if *detach {
		e, err := c.Sandbox(before[0]).StartInfo(inv.ctx, spec)
		if err != nil {
			return 0, err
		}
		return 0, inv.print(e, func(w io.Writer) { fmt.Fprintln(w, e.ID) })
	}
	return inv.run(c.Sandbox(before[0]), spec, *tty)
}

func shellCommand(inv *invocation) (int, error) {
	var f execFlags
	f.add(inv)
	args, err := inv.some(1, 1, "SANDBOX")
	if err != nil {
		return 0, err
	}
	// Whichever shell the root has; the better one first.
	spec, err := f.spec([]string{"/bin/sh", "-c", "command -v bash >/dev/null && exec bash -l; exec sh -l"})
	if err != nil {
		return 0, err
	}
	spec.Stdin = true
	if spec.Env["TERM"] == "" {
		spec.Env["TERM"] = os.Getenv("TERM")
	}
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	return inv.run(c.Sandbox(args[0]), spec, terminal.Is(os.Stdin) && terminal.Is(os.Stdout))
}

// run starts a command, joins it with this program's streams, and gives its exit
// code.
func (inv *invocation) run(s *client.Sandbox, spec api.ExecSpec, tty bool) (int, error) {
	out, errs := inv.outputs()
	a := client.Attachment{Stdout: out, Stderr: errs}
	if tty {
		term, err := terminal.Open(os.Stdin, os.Stdout)
		if err != nil {
			return 0, err
		}
		size := term.Size()
		spec.Stdin, spec.Pty = true, &api.Window{Rows: size.Rows, Cols: size.Cols}
		e, err := s.Start(inv.ctx, spec)
		if err != nil {
			return 0, err
		}
		if err := term.Raw(); err != nil {
			return 0, err
		}
		defer term.Restore(true) // the next prompt shows whether it did
		resized, stop := windows(term)
		defer stop()
		a.Resize, a.Stdin = resized, keyboard{os.Stdin}
		return inv.attend(e, a)
	}
	e, err := s.Start(inv.ctx, spec)
	if err != nil {
		return 0, err
	}
	if spec.Stdin {
		a.Stdin = os.Stdin
	}
	signals, stop := passed()
	defer stop()
	a.Signals = signals
	return inv.attend(e, a)
}

// attend follows a command to its end.
func (inv *invocation) attend(e *client.Exec, a client.Attachment) (int, error) {
	info, err := e.Attach(inv.ctx, a)
	if err != nil {
		return 0, err
	}
	return inv.tell(info)
}

// tell says how a command ended where its exit code alone does not, and gives that.
func (inv *invocation) tell(e api.Exec) (int, error) {
	for _, d := range e.Denials {
		inv.Say("denied: %s: %s", terminal.Printable(d.What), terminal.Printable(d.Why))
	}
	if inv.JSON {
		if err := inv.line(e); err != nil {
			return 0, err
		}
	}
	if e.End == nil {
		return 0, bailey.Errorf(bailey.CodeProtocol, "say how the command ended", "", "the daemon did not")
	}
	return inv.verdict(*e.End), nil
}

// verdict says how a command ended where its exit code alone does not, and gives that.
func (inv *invocation) verdict(end bailey.End) int {
	switch end.Reason {
	case bailey.EndExit, bailey.EndSignal:
	case bailey.EndNotStarted:
		code := bailey.CodeCommandNotExecutable
		if end.ExitCode == 127 {
			code = bailey.CodeCommandNotFound
		}
		inv.Fail(bailey.Errorf(code, "start the command", "", "%s", cmp.Or(end.Detail, "the sandbox cannot execute it")))
	default:
		inv.Say("%s", terminal.Printable(end.String()))
	}
	return end.Code()
}

// outputs are where a command's output goes: through a filter when that is a
// terminal, byte for byte otherwise.
func (inv *invocation) outputs() (out, errs io.Writer) {
	out, errs = os.Stdout, os.Stderr
	if inv.JSON {
		out = os.Stderr // the result is alone on standard output
	}
	if terminal.Is(os.Stdout) {
		out = terminal.NewFilter(out)
	}
	if terminal.Is(os.Stderr) {
		errs = terminal.NewFilter(errs)
	}
	return out, errs
}

// keyboard reads a terminal in raw mode, where a read that finds nothing returns at
// once.
type keyboard struct{ f *os.File }

func (k keyboard) Read(p []byte) (int, error) {
	fd := int(k.f.Fd())
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return 0, err
		}
		n, err := unix.Read(fd, p)
		switch {
		case n > 0:
			return n, nil
		case err == nil && fds[0].Revents&unix.POLLHUP != 0:
			return 0, io.EOF
		case err != nil && err != unix.EINTR && err != unix.EAGAIN:
			return 0, err
		}
	}
}

// windows tells each new size of the terminal.
func windows(term *terminal.Terminal) (<-chan api.Window, func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	sizes, done := make(chan api.Window), make(chan struct{})
	go func() {
		for {
			select {
			case <-changed:
				s := term.Size()
				select {
				case sizes <- api.Window{Rows: s.Rows, Cols: s.Cols}:
				case <-done:
					return
				}
			case <-done:
				return
			}
		}
	}()
	return sizes, func() { signal.Stop(changed); close(done) }
}

// passed gives the signals that are meant for the command: it ends by them, and
// this program when it has.
func passed() (<-chan string, func()) {
	got := make(chan os.Signal, 4)
	signal.Notify(got, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	names, done := make(chan string), make(chan struct{})
	go func() {
		for {
			select {
			case s := <-got:
				select {
				case names <- unix.SignalName(s.(unix.Signal)):
				case <-done:
					return
				}
			case <-done:
				return
			}
		}
	}()
	return names, func() { signal.Stop(got); close(done) }
}

func logsCommand(inv *invocation) (int, error) {
	follow := inv.Flags.BoolP("follow", "f", false, "go on until it has ended")
	var stream string
	var offset int64
	inv.Flags.StringVar(&stream, "stream", "", "stdout or stderr only")
	inv.Flags.Int64Var(&offset, "offset", 0, "begin at this byte of each stream")
	list := inv.Flags.Bool("list", false, "list its commands")
	args, err := inv.some(1, 2, "SANDBOX [EXEC]")
	if err != nil {
		return 0, err
	}
	if stream != "" && stream != string(api.Stdout) && stream != string(api.Stderr) {
		return 0, bailey.Errorf(bailey.CodeUsage, "show the stream "+stream, "one of stdout, stderr", "there is no such stream")
	}
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	s := c.Sandbox(args[0])
	if *list || len(args) == 1 {
		execs, err := s.Execs(inv.ctx)
		if err != nil {
			return 0, err
		}
		if *list {
			return 0, inv.print(execs, func(w io.Writer) { table(w, execRows(execs)) })
		}
		if len(execs) == 0 {
			return 0, bailey.Errorf(bailey.CodeNotFound, "show the output of "+args[0], "run one with bailey exec", "it has run no command")
		}
		args = append(args, execs[len(execs)-1].ID)
	}
	return inv.showLog(s.Exec(args[1]), api.Stream(stream), offset, *follow)
}

// showLog writes what is kept of a command's output.
func (inv *invocation) showLog(e *client.Exec, only api.Stream, offset int64, follow bool) (int, error) {
	out, errs := inv.outputs()
	to := map[api.Stream]io.Writer{api.Stdout: out, api.Stderr: errs}
	show := func(ev api.OutputEvent) error {
		if only != "" && ev.Stream != only {
			return nil
		}
		if inv.JSON {
			return inv.line(ev)
		}
		if ev.Dropped > 0 {
			inv.Say("%d bytes before offset %d are kept no more", ev.Dropped, ev.Offset)
		}
		_, err := to[ev.Stream].Write(ev.Data)
		return err
	}
	if follow {
		info, err := e.Output(inv.ctx, map[api.Stream]int64{api.Stdout: offset, api.Stderr: offset}, show)
		if err != nil {
			return 0, inv.ended(err)
		}
		return inv.tell(info)
	}
	for _, s := range []api.Stream{api.Stdout, api.Stderr} {
		if only != "" && s != only {
			continue
		}
		r, at, err := e.Read(inv.ctx, s, offset)
		if err != nil {
			return 0, err
		}
		if at > offset {
			inv.Say("%d bytes of %s before offset %d are kept no more", at-offset, s, at)
		}
		w := to[s]
		if inv.JSON {
			w = &lines{inv: inv, stream: s, at: at}
		}
		_, err = io.Copy(w, r)
		r.Close() // it was only read
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// lines writes output as JSON objects.
type lines struct {
	inv    *invocation
	stream api.Stream
	at     int64
}

func (l *lines) Write(p []byte) (int, error) {
	err := l.inv.line(api.OutputEvent{Stream: l.stream, Offset: l.at, Data: p})
	l.at += int64(len(p))
	return len(p), err
}

func execRows(list []api.Exec) [][]string {
	rows := [][]string{{"ID", "STATE", "STARTED", "END", "COMMAND"}}
	for _, e := range list {
		end := ""
		if e.End != nil {
			end = e.End.String()
		}
		rows = append(rows, []string{e.ID, string(e.State), ago(e.Started) + " ago", end, terminal.Shorten(fmt.Sprint(e.Args), 60)})
	}
	return rows
}
