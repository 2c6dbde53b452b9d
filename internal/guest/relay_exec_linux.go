//go:build linux && (amd64 || arm64)

package guest

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// relayed is an execution whose descriptors are here.
type relayed struct {
	r   *Relay
	id  string
	tty bool

	started chan struct{} // closed once the inside has answered
	refused *failMsg      // why it did not start, once started is closed

	// Set before started is closed, and then as they are.
	p    *proc
	pid  int
	wait time.Duration // how long the output is left inside for descriptors to come

	mu      sync.Mutex
	state   State
	end     *ExecEnd // from inside; told once the output before it is written
	told    bool
	owner   to          // who follows it
	stdin   *os.File    // from the owner, nil when nobody reads it any more
	out     [2]*os.File // to the owner; nil is nowhere
	master  *os.File    // of the terminal, for the owner
	written [2]int64    // offsets of what the owner has
	had     [2]int64    // offsets up to which the owner has it from before the relay
	closed  [2]bool     // nothing more comes of this output
	bare    bool        // it is from before the relay, and has no descriptors
	moving  bool        // output is being moved
	moved   int64       // bytes that the owner's pipes have taken, parts of a piece included
	stuck   bool        // the owner reads none of what is left
}

// exec starts a command, or answers for the one that has its id.
func (o *ownerSession) exec(f frame) error {
	fds, err := o.l.take(f.nfds)
	if err != nil {
		return err
	}
	defer func() { closeAll(fds) }()
	m, err := parseExec(f.payload)
	if err != nil {
		return err
	}
	want := 0
	if m.flags&execFiles != 0 {
		want = passedFiles(m.flags)
	}
	if want != f.nfds {
		return errMessage
	}
	t, r := o.now(), o.r
	if x := r.find(m.id); x != nil {
		x.answerLater(t, f.req)
		return nil
	}
	switch {
	case !o.passes, m.flags&(execFiles|execTerminal) == 0:
		t.fail(f.req, failMsg{kind: failUsage, text: "this sandbox takes commands with descriptors only"})
		return nil
	case m.flags&execControl != 0:
		t.fail(f.req, failMsg{kind: failUsage, text: "a terminal of the caller's cannot be a command's own in this sandbox: ask for one inside"})
		return nil
	}
	x := newRelayed(r, m.id)
	inside := *m
	inside.flags &= execTerminal
	if m.flags&execTerminal != 0 {
		if err := x.openTerminal(m.window); err != nil {
			t.fail(f.req, failureOf(err))
			return nil
		}
	}
	if m.flags&execFiles != 0 {
		x.stdin, x.out = filesOf(m.flags, fds)
		fds = nil
		if x.stdin != nil {
			inside.flags |= execStdin
		}
	}
	x.begin(t, f.req, frameExec, inside.put)
	return nil
}

// filesOf takes over the descriptors of a command.
func filesOf(flags uint16, fds []int) (stdin *os.File, out [2]*os.File) {
	for i, bit := range [...]uint16{execNull0, execNull1, execNull2} {
		if flags&bit != 0 {
			continue
		}
		f := fileOf(fds[0])
		if fds = fds[1:]; i == 0 {
			stdin = f
		} else {
			out[i-1] = f
		}
	}
	return stdin, out
}

// attach answers for an execution, or asks the inside for one that it has and this end has
// not: from before it was restored. Such a one takes descriptors, once.
func (o *ownerSession) attach(f frame) error {
	fds, err := o.l.take(f.nfds)
	if err != nil {
		return err
	}
	m, err := parseAttach(f.payload, f.nfds)
	if err != nil || f.nfds > 0 && !o.passes {
		closeAll(fds)
		return errMessage
	}
	var stdin *os.File
	var out [2]*os.File
	if f.nfds > 0 {
		stdin, out = filesOf(m.nulls, fds)
	}
	t, r := o.now(), o.r
	if x := r.find(m.id); x != nil {
		x.whenStarted(func() {
			if f.nfds > 0 && !x.plumb(stdin, out, m.offsets) && x.refused == nil {
				t.fail(f.req, failMsg{kind: failConflict, text: "it has the descriptors that it was started with"})
				return
			}
			x.answer(t, f.req, true)
		})
		return nil
	}
	x := newRelayed(r, m.id)
	x.stdin, x.out, x.bare = stdin, out, f.nfds == 0
	if f.nfds > 0 {
		x.had = m.offsets
	}
	x.begin(t, f.req, frameAttach, attachMsg{id: m.id}.put)
	return nil
}

// plumb gives an execution from before the relay its descriptors, and reports whether it
// had none. had says how much of the outputs the owner has already.
func (x *relayed) plumb(stdin *os.File, out [2]*os.File, had [2]int64) bool {
	x.mu.Lock()
	ok := x.bare && !x.tty && x.refused == nil
	if ok {
		x.bare, x.had = false, had
		for i, f := range out {
			if f != nil && !x.closed[i] {
				x.out[i], out[i] = f, nil
			}
		}
		if stdin != nil && x.p.in != nil {
			x.stdin, stdin = stdin, nil
		}
	}
	x.mu.Unlock()
	for _, f := range []*os.File{stdin, out[0], out[1]} { // nothing leads there
		if f != nil {
			f.Close()
		}
	}
	if ok {
		x.feedFrom()
		x.move()
	}
	return ok
}

func newRelayed(r *Relay, id string) *relayed {
	return &relayed{r: r, id: id, started: make(chan struct{}), state: StateRunning}
}

// begin asks the inside, and answers the owner once the inside has answered. It reports whether it
// has asked.
func (x *relayed) begin(t to, req uint32, typ frameType, put func([]byte) []byte) bool {
	c := x.r.c
	p := &proc{c: c, id: x.id, started: make(chan struct{}), ended: make(chan struct{}), events: make(chan Event, 16)}
	c.mu.Lock()
	taken := c.procs[x.id] != nil
	if c.procs != nil && !taken {
		c.procs[x.id] = p
	}
	c.mu.Unlock()
	if taken {
		t.fail(req, failMsg{kind: failConflict, text: "the id is in use for something else"})
		x.release()
		return false
	}
	x.p = p
	x.r.mu.Lock()
	x.r.execs[x.id] = x
	x.r.mu.Unlock()
	p.prepare([3]*os.File{}, true)
	if typ == frameAttach {
		for _, out := range p.out {
			out.start(0)
		}
	}
	existing := false
	k := &call{take: func(b []byte, got []int) (err error) {
		existing, err = p.take(typ, b, got)
		return err
	}}
	inner, err := c.begin("start a command", k)
	if err != nil {
		c.forgetProc(p)
		x.refuse(failureOfRelay(err))
		x.answerLater(t, req)
		return true
	}
	c.mu.Lock()
	p.live = true
	c.mu.Unlock()
	c.l.send(typ, inner, put)
	go func() {
		<-k.done
		switch m, ok := k.res.err.(*failMsg); {
		case k.res.err == nil:
			x.run(existing && typ == frameExec)
		case ok:
			c.forgetProc(p)
			x.refuse(*m)
		default: // the inside is lost, and all with it
			c.forgetProc(p)
			x.refuse(failureOfRelay(k.res.err))
		}
		x.answer(t, req, existing || typ == frameAttach)
	}()
	return true
}

// refuse ends what did not start.
func (x *relayed) refuse(m failMsg) {
	x.r.mu.Lock()
	if x.r.execs[x.id] == x {
		delete(x.r.execs, x.id)
	}
	x.r.mu.Unlock()
	x.release()
	x.refused = &m
	close(x.started)
}

// whenStarted calls what needs an execution that the inside has answered for.
func (x *relayed) whenStarted(now func()) {
	select {
	case <-x.started:
		now()
	default:
		go func() {
			<-x.started
			now()
		}()
	}
}

// answerLater answers a request about an execution that may not have started yet.
func (x *relayed) answerLater(t to, req uint32) {
	x.whenStarted(func() { x.answer(t, req, true) })
}

// answer answers a request, and makes who asked the one who follows the execution.
func (x *relayed) answer(t to, req uint32, existing bool) {
	if x.refused != nil {
		t.fail(req, *x.refused)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	m := execReply{existing: existing, terminal: x.tty, pid: uint32(x.pid), state: x.state}
	if x.told {
		m.state, m.end = StateEnded, x.toldEnd()
	}
	var fds []int
	if x.master != nil {
		if fd, err := dup(x.master); err == nil {
			fds = []int{fd}
		}
	}
	x.owner = t
	t.send(frameAnswer, req, fds, m.put)
}

// toldEnd is the end as the owner gets it: nobody counts what goes through descriptors.
func (x *relayed) toldEnd() *ExecEnd {
	end := *x.end
	end.Output = [2]int64{-1, -1}
	return &end
}

// run begins to follow what the inside has answered for. With earlier it was there before the
// request to start it: the descriptors of that lead nowhere.
func (x *relayed) run(earlier bool) {
	p := x.p
	x.pid = p.pid
	x.mu.Lock()
	x.bare = x.bare || earlier
	files := []*os.File{}
	if earlier && !x.tty {
		files = append(files, x.stdin, x.out[0], x.out[1])
		x.stdin, x.out = nil, [2]*os.File{}
	}
	if p.in == nil && x.stdin != nil && !x.tty {
		files = append(files, x.stdin)
		x.stdin = nil
	}
	for i, out := range p.out {
		if out != nil {
			x.written[i] = out.Offset()
			continue
		}
		x.closed[i] = true
		if !x.tty {
			files = append(files, x.out[i])
			x.out[i] = nil
		}
	}
	terminal := p.terminal && x.master == nil // from before the inside was restored
	x.mu.Unlock()
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
	if terminal {
		if err := x.openTerminal(Window{}); err != nil {
			x.mu.Lock()
			x.tty = true // its output goes nowhere
			x.mu.Unlock()
		}
	}
	x.feedFrom()
	if x.wait == 0 {
		x.move()
	} else {
		time.AfterFunc(x.wait, x.move)
	}
	go x.follow()
	close(x.started)
}

// feedFrom begins to feed the input from the owner's descriptor, if there is one.
func (x *relayed) feedFrom() {
	x.mu.Lock()
	stdin := x.stdin
	x.mu.Unlock()
	if stdin == nil {
		return
	}
	fed := x.p.fed
	fed.mu.Lock()
	fed.onGone = x.closeStdin
	gone := fed.gone
	fed.mu.Unlock()
	if gone {
		x.closeStdin()
		return
	}
	go x.feed(stdin)
}

// move begins to move the output, once.
func (x *relayed) move() {
	x.mu.Lock()
	begun := x.moving
	x.moving = true
	x.mu.Unlock()
	if begun {
		return
	}
	for i, out := range x.p.out {
		if out != nil {
			x.r.pumping(1)
			go x.pump(i, out)
		}
	}
}

// openTerminal makes the terminal that the owner gets the master of. It changes no byte:
// the one that the command has does.
func (x *relayed) openTerminal(w Window) error {
	master, slave, err := openTerminal(w, nil)
	if err != nil {
		return err
	}
	mode, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err == nil {
		mode.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		mode.Oflag &^= unix.OPOST
		mode.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		mode.Cflag = mode.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
		mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
		err = unix.IoctlSetTermios(slave, unix.TCSETS, mode)
	}
	if err != nil {
		closeAll([]int{master, slave})
		return stepErr("set up the terminal", err)
	}
	unix.SetNonblock(slave, true)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tty = true
	x.master = os.NewFile(uintptr(master), "terminal")
	x.out[0] = os.NewFile(uintptr(slave), "terminal")
	x.stdin = x.out[0]
	return nil
}

// resize tells this end of the terminal its size too.
func (x *relayed) resize(w Window) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.master == nil {
		return
	}
	if raw, err := x.master.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Cols, Xpixel: w.XPixel, Ypixel: w.YPixel})
		})
	}
}

// fileOf takes over a descriptor. The runtime's poller waits for a pipe or a socket;
// what never waits, or is a terminal of somebody else's, stays as it is.
func fileOf(fd int) *os.File {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && (st.Mode&unix.S_IFMT == unix.S_IFIFO || st.Mode&unix.S_IFMT == unix.S_IFSOCK) {
		unix.SetNonblock(fd, true)
	}
	return os.NewFile(uintptr(fd), "stream")
}

// Follow follows what runs inside from before this relay, such as in memory that was
// restored, so that it does not stand still for want of a reader. What it prints is left inside for so
// long, in which the owner may attach with descriptors for it; then it goes nowhere. That of a
// terminal waits in one made here.
func (r *Relay) Follow(ctx context.Context, wait time.Duration) error {
	list, err := r.c.Execs(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.State == StateEnded && s.Left == 0 {
			continue
		}
		x := newRelayed(r, s.ID)
		x.bare, x.wait = true, wait
		if x.begin(to{}, 0, frameAttach, attachMsg{id: s.ID}.put) {
			select {
			case <-x.started:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}
