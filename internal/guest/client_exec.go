package guest

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	bailey "github.com/bailey-sandbox/bailey"
	"golang.org/x/sys/unix"
)

// Process is one execution, as one caller sees it.
type Process struct {
	*proc
	existing bool
}

// proc is what a Client knows of an execution that it follows.
type proc struct {
	c        *Client
	id       string
	pid      int
	terminal bool
	out      [2]*Output
	in       io.WriteCloser
	fed      *feeder // in, where it goes over the protocol

	started chan struct{} // closed once the sandbox has answered
	err     error         // why it is not started, once started is closed
	ended   chan struct{}
	events  chan Event

	live     bool // its request was sent; guarded by c.mu
	answered bool // what arrives is for this proc; used by the receiving goroutine only

	mu       sync.Mutex
	end      ExecEnd
	lostErr  error
	finished bool
}

// AttachOptions say where to go on with an execution after a new connection.
type AttachOptions struct {
	// Offsets are, where bytes go over the protocol or with Plumb, the next bytes of
	// stdout and stderr that are wanted. All below is acknowledged by that.
	Offsets [2]int64
	// Files are, where descriptors were passed, the owner's ends from the first
	// time, which become the Process's: stdin to write, stdout and stderr to
	// read. Nil where there is none. A terminal needs none: its master comes
	// from inside again.
	Files     [3]*os.File
	ManualAck bool // as in ExecSpec
	// Plumb, over a Socket only, are new descriptors for an execution that lost its first
	// ones because the sandbox was restored from memory (see Relay.Follow): its 0, 1 and 2, of which the
	// caller keeps the other ends. A nil one is nowhere. Any other execution
	// refuses them with code conflict.
	Plumb *[3]*os.File
}

// check refuses what the protocol cannot carry.
func (s *ExecSpec) check(passes bool) error {
	refuse := func(why, fix string) error {
		return bailey.Errorf(bailey.CodeUsage, "start a command in the sandbox", fix, "%s", why)
	}
	n := 0
	for _, list := range [...][]string{s.Argv, s.Env} {
		if len(list) > MaxArgs {
			return refuse("there are more than 65536 arguments or variables", "pass less")
		}
		for _, a := range list {
			if strings.IndexByte(a, 0) >= 0 {
				return refuse("an argument or variable holds a NUL byte", "pass it in a file")
			}
			n += len(a) + 1
		}
	}
	switch {
	case s.ID == "" || len(s.ID) > MaxID || strings.IndexByte(s.ID, 0) >= 0:
		return refuse("its id is empty, too long or holds a NUL byte", "use 1 to 128 bytes")
	case len(s.Argv) == 0 || s.Argv[0] == "":
		return refuse("there is no command", "name one")
	case n > MaxArgBytes:
		return refuse("its arguments and environment are larger than 2 MiB", "pass less, or a file")
	case s.Dir != "" && (s.Dir[0] != '/' || len(s.Dir) > MaxPath || strings.IndexByte(s.Dir, 0) >= 0):
		return refuse("its folder is not an absolute path of at most 4096 bytes", "")
	case s.Umask != nil && *s.Umask > 0o777:
		return refuse("its umask is out of range", "use 0 to 0777")
	case len(s.Rlimits) > MaxRlimits || s.User != nil && len(s.User.Groups) > MaxGroups:
		return refuse("it has too many resource limits or groups", "")
	case s.Timeout < 0 || s.Grace < 0:
		return refuse("its timeout is negative", "")
	case s.Files != nil && !passes:
		return refuse("descriptors cannot be passed over this transport", "leave Files nil")
	case s.Files != nil && s.Terminal != nil:
		return refuse("Files and Terminal exclude each other", "")
	case s.ControllingTerminal && (s.Files == nil || s.Files[0] == nil):
		return refuse("ControllingTerminal needs a terminal in Files[0]", "")
	}
	return nil
}

// Exec starts a command and returns once it is executed. With the ID of an
// execution that exists it attaches to that, and Process.Existing says so.
//
// A command that could not be executed is an error with code
// command_not_found, command_not_executable or setup_failed, whose cause is a
// *NotStarted. When ctx ends first, the command may or may not have started;
// Exec again with the same ID tells.
func (c *Client) Exec(ctx context.Context, spec ExecSpec) (*Process, error) {
	if err := spec.check(c.passes); err != nil {
		return nil, err
	}
	p, mine, err := c.follow(ctx, spec.ID)
	if err != nil || !mine {
		return &Process{p, true}, err
	}
	existing, err := p.start(ctx, &spec)
	if err != nil {
		return nil, err
	}
	return &Process{p, existing}, nil
}

// follow registers an execution, or waits for whoever is doing so already.
func (c *Client) follow(ctx context.Context, id string) (p *proc, mine bool, err error) {
	c.mu.Lock()
	if c.procs == nil {
		c.mu.Unlock()
		return nil, false, c.lost("start a command in the sandbox")
	}
	if p := c.procs[id]; p != nil {
		c.mu.Unlock()
		select {
		case <-p.started:
			return p, false, p.err
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	p = &proc{c: c, id: id, started: make(chan struct{}), ended: make(chan struct{}), events: make(chan Event, 16)}
	c.procs[id] = p
	c.mu.Unlock()
	return p, true, nil
}

// start sends the request that spec is and takes the answer.
func (p *proc) start(ctx context.Context, spec *ExecSpec) (existing bool, err error) {
	m := &execMsg{id: spec.ID, argv: spec.Argv, env: spec.Env, dir: spec.Dir, user: spec.User, umask: 0o022, rlimits: spec.Rlimits,
		timeout: spec.Timeout, grace: spec.Grace}
	if m.dir == "" {
		m.dir = "/"
	}
	if spec.Umask != nil {
		m.umask = *spec.Umask
	}
	if spec.Stdin {
		m.flags |= execStdin
	}
	var fds []int
	var mine [3]*os.File
	switch {
	case spec.Terminal != nil:
		m.flags |= execTerminal
		m.window = *spec.Terminal
	case spec.Files != nil:
		m.flags |= execFiles
		if spec.ControllingTerminal {
			m.flags |= execControl
		}
		for i, f := range spec.Files {
			if f == nil {
				m.flags |= execNull0 << i
				continue
			}
			fd, err := dup(f)
			if err != nil {
				closeAll(fds)
				return false, p.giveUp(bailey.Errorf(bailey.CodeUsage, "start a command in the sandbox", "", "a descriptor to pass cannot be copied: %w", err))
			}
			fds = append(fds, fd)
		}
	case p.c.passes:
		m.flags |= execFiles
		for i := range 3 {
			if i == 0 && !spec.Stdin {
				m.flags |= execNull0
				continue
			}
			own, theirs, err := pipe(i == 0)
			if err != nil {
				closeAll(fds)
				closeFiles(mine)
				return false, p.giveUp(bailey.Errorf(bailey.CodeInternal, "start a command in the sandbox", "raise the limit on open files", "no pipe can be made: %w", err))
			}
			mine[i] = own
			fds = append(fds, theirs)
		}
	}
	// What arrives for the execution before this goroutine has seen the answer
	// already finds its streams.
	p.prepare(mine, spec.ManualAck)
	existing, err = p.request(ctx, frameExec, fds, m.put)
	if err != nil {
		closeFiles(mine)
		return false, err
	}
	return existing, nil
}

// pipe makes a pipe, one end of it for the sandbox.
func pipe(sandboxReads bool) (own *os.File, theirs int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, -1, err
	}
	given := w
	if own = r; sandboxReads {
		own, given = w, r
	}
	// A copy, because closing is the link's task; and blocking, because that is
	// what a command expects of its pipes.
	theirs, err = dup(given)
	given.Close()
	if err == nil {
		err = unix.SetNonblock(theirs, false)
	}
	if err != nil {
		own.Close()
		return nil, -1, err
	}
	return own, theirs, nil
}

func closeFiles(files [3]*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// Attach follows an execution that an earlier connection started.
func (c *Client) Attach(ctx context.Context, id string, opt AttachOptions) (*Process, error) {
	what := "attach to a command in the sandbox"
	if id == "" || len(id) > MaxID || strings.IndexByte(id, 0) >= 0 || opt.Offsets[0] < 0 || opt.Offsets[1] < 0 {
		return nil, bailey.Errorf(bailey.CodeUsage, what, "", "the id or an offset is out of range")
	}
	if opt.Plumb != nil && (!c.passes || c.version < 3) {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, what, "", "this sandbox takes no other descriptors for it")
	}
	p, mine, err := c.follow(ctx, id)
	if err != nil || !mine {
		return &Process{p, true}, err
	}
	m, put := attachMsg{id: id, offsets: opt.Offsets}, attachMsg.put
	var fds []int
	if opt.Plumb != nil {
		for i, f := range opt.Plumb {
			if f == nil {
				m.nulls |= execNull0 << i
				continue
			}
			fd, err := dup(f)
			if err != nil {
				closeAll(fds)
				return nil, p.giveUp(bailey.Errorf(bailey.CodeUsage, what, "", "a descriptor to pass cannot be copied: %w", err))
			}
			fds = append(fds, fd)
		}
		if len(fds) > 0 {
			put = attachMsg.putNulls
		}
	}
	p.prepare(opt.Files, opt.ManualAck)
	for i, o := range p.out {
		o.start(opt.Offsets[i])
	}
	if _, err := p.request(ctx, frameAttach, fds, func(b []byte) []byte { return put(m, b) }); err != nil {
		return nil, err
	}
	return &Process{p, true}, nil
}

// prepare makes the streams; those that the answer does not name are taken
// away again.
func (p *proc) prepare(files [3]*os.File, manual bool) {
	for i := range p.out {
		p.out[i] = newOutput(p, i, files[i+1], manual)
	}
	if files[0] != nil {
		p.in = files[0]
	}
	p.fed = newFeeder(p)
}

// request sends the request that starts or attaches, and takes its answer.
func (p *proc) request(ctx context.Context, typ frameType, fds []int, put func([]byte) []byte) (existing bool, err error) {
	what := "start a command in the sandbox"
	if typ == frameAttach {
		what = "attach to a command in the sandbox"
	}
	k := &call{take: func(b []byte, got []int) (err error) {
		existing, err = p.take(typ, b, got)
		return err
	}}
	req, err := p.c.begin(what, k)
	if err != nil {
		closeAll(fds)
		return false, p.giveUp(err)
	}
	p.c.mu.Lock()
	p.live = true
	p.c.mu.Unlock()
	p.c.l.sendFDs(typ, req, fds, put)
	if _, _, err := p.c.wait(ctx, req, k); err != nil {
		if errors.Is(err, errMessage) || errors.As(err, new(errProtocol)) {
			err = p.c.broken(what, err)
		}
		return false, p.giveUp(failed(what, err))
	}
	close(p.started)
	return existing, nil
}

// take takes the answer: which streams there are, and where they are.
func (p *proc) take(typ frameType, b []byte, fds []int) (existing bool, err error) {
	m, err := parseExecReply(b, p.c.version)
	if err != nil {
		return false, err
	}
	if len(fds) > 0 {
		if err := p.takeTerminal(m, fds[0]); err != nil {
			return false, err
		}
	}
	p.pid, p.terminal = int(m.pid), m.terminal
	for i, o := range p.out {
		switch {
		case o.f != nil && m.existing && typ == frameExec && !m.terminal:
			// The pipes just made lead nowhere: those of the first time do.
			o.f.Close()
			p.out[i] = nil
		case o.f == nil && m.streams&(2<<i) == 0:
			p.out[i] = nil
		case o.f == nil:
			if err := o.based(m.base[i]); err != nil {
				return false, err
			}
		}
	}
	if m.streams&1 != 0 {
		p.fed.start(m)
		p.in = p.fed
	}
	p.answered = true
	if m.end != nil {
		p.finish(*m.end)
	}
	return m.existing, nil
}

// takeTerminal takes the master of a terminal, which comes from inside: it has
// to be one, because reading anything else could hold this process.
func (p *proc) takeTerminal(m *execReply, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || !m.terminal || m.streams != 0 || !isTerminalMaster(&st) {
		return errProtocol("it passed a descriptor that is no terminal")
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "terminal")
	if p.out[0].f != nil {
		p.out[0].f.Close()
	}
	p.out[0] = newOutput(p, 0, f, false)
	p.in = terminalInput{f}
	return nil
}

// terminalInput is a terminal's keyboard. Closing it types the character that
// means the end of input; the terminal stays.
type terminalInput struct{ f *os.File }

func (t terminalInput) Write(b []byte) (int, error) { return t.f.Write(b) }
func (t terminalInput) Close() error {
	_, err := t.f.Write([]byte{4})
	return err
}

// giveUp ends the following of an execution that did not start.
func (p *proc) giveUp(err error) error {
	p.c.forgetProc(p)
	p.err = err
	close(p.started)
	return err
}

func (c *Client) forgetProc(p *proc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.procs[p.id] == p {
		delete(c.procs, p.id)
	}
}

// send sends what belongs to the execution, as long as this proc is the one
// that follows it, and reports whether it is: what another one asks for later
// is sent after all that this one has sent.
func (p *proc) send(typ frameType, put func([]byte) []byte) bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.procs[p.id] != p {
		return false
	}
	p.c.l.send(typ, 0, put)
	return true
}

// output takes output that came over the protocol.
func (p *proc) output(m bytesMsg) error {
	o := p.out[m.stream-1]
	if o == nil || o.f != nil {
		return errMessage
	}
	return o.feed(m)
}

// event takes what happened to the execution.
func (p *proc) event(m eventMsg) {
	if m.kind == EventEnded {
		p.finish(*m.end)
		return
	}
	select {
	case p.events <- Event{m.kind, syscall.Signal(m.sig)}:
	default: // nobody reads them
	}
}

// finish takes the end.
func (p *proc) finish(end ExecEnd) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return
	}
	p.finished = true
	for i, o := range p.out {
		if o != nil && o.f != nil && !p.terminal {
			end.Output[i] = o.waiting()
		}
	}
	p.end = end
	for sent := false; !sent; {
		select {
		case p.events <- Event{Kind: EventEnded}:
			sent = true
		default:
			select {
			case <-p.events:
			default:
			}
		}
	}
	close(p.events)
	close(p.ended)
}

// lost ends everything that waits for the execution.
func (p *proc) lost(err error) {
	p.mu.Lock()
	if !p.finished {
		p.finished, p.lostErr = true, err
		close(p.events)
		close(p.ended)
	}
	p.mu.Unlock()
	for _, o := range p.out {
		if o != nil && o.f == nil {
			o.lost(err)
		}
	}
	if p.fed != nil {
		p.fed.lost(err)
	}
}

// ID is the execution's id.
func (p *proc) ID() string { return p.id }

// Pid is the main process's number inside the sandbox.
func (p *proc) Pid() int { return p.pid }

// Existing reports whether Exec found an execution of this ID instead of
// starting one.
func (p *Process) Existing() bool { return p.existing }

// Stdin feeds the command's input; closing it is its end. It is nil where none
// was asked for.
func (p *proc) Stdin() io.WriteCloser { return p.in }

// Stdout is the command's output, or a terminal's. It is nil where the caller
// passed Files, or attached without them.
func (p *proc) Stdout() *Output { return p.out[0] }

// Stderr is the command's error output; nil as Stdout, and for a terminal.
func (p *proc) Stderr() *Output { return p.out[1] }

// Events gives stops, continuations and the end; the channel is closed after
// the end.
func (p *proc) Events() <-chan Event { return p.events }

// Wait waits for the main process's end. Processes that it left behind do not
// hold it; neither does output that was not read.
func (p *proc) Wait(ctx context.Context) (ExecEnd, error) {
	select {
	case <-p.ended:
	case <-ctx.Done():
		return ExecEnd{}, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end, p.lostErr
}

// Signal sends a signal.
func (p *proc) Signal(ctx context.Context, sig syscall.Signal, scope Scope) error {
	return p.c.Signal(ctx, p.id, sig, scope)
}

// Resize tells the command's terminal its size. The sandbox is asked to, also where the
// terminal's master is here: the command's own may lie behind it, see Relay.
func (p *proc) Resize(ctx context.Context, w Window) error {
	what := "resize a terminal of the sandbox"
	return p.c.doEmpty(ctx, what, frameResize, resizeMsg{p.id, w}.put)
}

// Close stops following the execution, which goes on, and closes what this end
// holds of it. A command that then writes to a closed pipe gets SIGPIPE.
func (p *proc) Close() error {
	p.c.forgetProc(p)
	for _, o := range p.out {
		if o != nil {
			o.close()
		}
	}
	if f, ok := p.in.(*os.File); ok {
		f.Close()
	}
	if p.fed != nil {
		p.fed.lost(os.ErrClosed)
	}
	return nil
}

// Signal sends a signal to an execution.
func (c *Client) Signal(ctx context.Context, id string, sig syscall.Signal, scope Scope) error {
	what := "signal a command in the sandbox"
	if sig < 0 || sig > 64 || scope > ScopeAll || id == "" || len(id) > MaxID {
		return bailey.Errorf(bailey.CodeUsage, what, "", "the signal, scope or id is out of range")
	}
	return c.doEmpty(ctx, what, frameSignal, signalMsg{id, uint8(sig), scope}.put)
}

// Status tells about one execution.
func (c *Client) Status(ctx context.Context, id string) (ExecStatus, error) {
	what := "ask for a command's status"
	b, err := c.do(ctx, what, frameStatus, func(b []byte) []byte { return putStr(b, id) })
	if err != nil {
		return ExecStatus{}, err
	}
	r := reader{b: b}
	s := r.status()
	if err := r.done(); err != nil || s.ID != id {
		return ExecStatus{}, c.broken(what, errMessage)
	}
	return s, nil
}

// Execs lists the executions that bailey-init knows, in no order.
func (c *Client) Execs(ctx context.Context) (list []ExecStatus, err error) {
	err = c.records(ctx, "list the sandbox's executions", &fileMsg{op: opExecs}, func(r *reader) func() error {
		s := r.status()
		return func() error { list = append(list, s); return tooMany(len(list)) }
	})
	return list, err
}

// Processes lists the processes in the sandbox, bailey-init included.
func (c *Client) Processes(ctx context.Context) (list []ProcessInfo, err error) {
	err = c.records(ctx, "list the sandbox's processes", &fileMsg{op: opProcesses}, func(r *reader) func() error {
		p := r.process()
		return func() error { list = append(list, p); return tooMany(len(list)) }
	})
	return list, err
}

// tooMany bounds a list that comes from inside.
func tooMany(n int) error {
	if n > 1<<20 {
		return errMessage
	}
	return nil
}

// Forget makes bailey-init drop an execution that has ended, its output
// included. Without it the latest MaxExecs are kept.
func (c *Client) Forget(ctx context.Context, id string) error {
	return c.doEmpty(ctx, "forget a command", frameForget, func(b []byte) []byte { return putStr(b, id) })
}
