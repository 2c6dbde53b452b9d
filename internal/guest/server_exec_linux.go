//go:build linux && (amd64 || arm64)

package guest

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/bailey-sandbox/bailey/internal/guest/vfork"
	"golang.org/x/sys/unix"
)

// execution is one command and what it left behind.
type execution struct {
	s       *Server
	id      string
	pid     int
	tag     uint64
	started time.Time
	out     [2]*outStream // stdout, or the terminal, and stderr; nil where descriptors were passed
	in      *inStream
	master  *os.File // of the terminal; kept so that an owner can come back for it
	tty     bool

	mu       sync.Mutex
	room     sync.Cond // output was acknowledged
	state    State
	end      *ExecEnd
	timedOut bool
	timer    *time.Timer
	link     *link // the owner that listens
	released bool
}

// exec starts a command, or attaches to the one that has its id.
func (c *session) exec(f frame) error {
	fds, err := c.l.take(f.nfds)
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
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.execs[m.id]; e != nil {
		c.reply(f.req, e, [2]int64{}, true)
		return nil
	}
	if s.quit {
		c.fail(f.req, failMsg{kind: failConflict, text: "the sandbox is being shut down"})
		return nil
	}
	if len(s.execs) >= MaxExecs && !s.evict() {
		c.fail(f.req, failMsg{kind: failBusy, text: "too many executions"})
		return nil
	}
	e, err := s.start(m, fds)
	if err != nil {
		c.fail(f.req, failureOf(err))
		return nil
	}
	c.reply(f.req, e, [2]int64{}, false)
	return nil
}

// evict forgets the execution that ended first. s.mu is held.
func (s *Server) evict() bool {
	if len(s.ended) == 0 {
		return false
	}
	id := s.ended[0]
	s.ended = s.ended[1:]
	s.execs[id].release()
	delete(s.execs, id)
	return true
}

// forget drops an execution that has ended.
func (s *Server) forget(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.execs[id]
	if e == nil {
		return errNoExec
	}
	e.mu.Lock()
	ended := e.end != nil
	e.mu.Unlock()
	if !ended {
		return &failure{kind: failConflict, text: "it is still running"}
	}
	for i, have := range s.ended {
		if have == id {
			s.ended = append(s.ended[:i], s.ended[i+1:]...)
			break
		}
	}
	e.release()
	delete(s.execs, id)
	return nil
}

// stdio are the descriptors of a command, and the owner's side of them.
type stdio struct {
	fds    [3]int
	close  []int // to close after the start
	out    [2]int
	in     int
	master int
}

func (io *stdio) closeAll(all bool) {
	closeAll(io.close)
	if all {
		for _, fd := range [...]int{io.out[0], io.out[1], io.in, io.master} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
}

// openStdio makes the descriptors that m asks for.
func (s *Server) openStdio(m *execMsg, fds []int) (*stdio, error) {
	io := &stdio{fds: [3]int{s.null, s.null, s.null}, out: [2]int{-1, -1}, in: -1, master: -1}
	switch {
	case m.flags&execFiles != 0:
		for i, bit := range [...]uint16{execNull0, execNull1, execNull2} {
			if m.flags&bit == 0 {
				io.fds[i], fds = fds[0], fds[1:]
			}
		}
	case m.flags&execTerminal != 0:
		master, slave, err := openTerminal(m.window, m.user)
		if err != nil {
			return nil, err
		}
		io.master, io.close, io.fds = master, []int{slave}, [3]int{slave, slave, slave}
	default:
		for i := range 3 {
			if i == 0 && m.flags&execStdin == 0 {
				continue
			}
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
				io.closeAll(true)
				return nil, stepErr("pipe", err)
			}
			mine, theirs := p[0], p[1]
			if i == 0 {
				mine, theirs = p[1], p[0]
				io.in = mine
			} else {
				io.out[i-1] = mine
			}
			unix.SetNonblock(mine, true)
			io.fds[i] = theirs
			io.close = append(io.close, theirs)
		}
	}
	return io, nil
}

// openTerminal opens a terminal of the sandbox's own, so that ttyname(3) finds
// it. The slave is opened through the master, never by a path that the
// sandbox could have replaced.
func openTerminal(w Window, u *User) (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, -1, stepErr("open /dev/ptmx", err)
	}
	fail := func(step string, err error) (int, int, error) {
		unix.Close(master)
		return -1, -1, stepErr(step, err)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock the terminal", err)
	}
	r, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return fail("open the terminal", e)
	}
	slave = int(r)
	unix.IoctlSetWinsize(slave, unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Cols, Xpixel: w.XPixel, Ypixel: w.YPixel})
	if u != nil {
		unix.Fchown(slave, int(u.UID), -1) // so that the command can open /dev/tty and its own name again
	}
	return master, slave, nil
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// candidates gives the programs to try for name, as execvp(3) does, but for
// folders of PATH that are relative: what lies in the folder a command happens
// to work in is not run by a bare name.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	path := defaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
			break
		}
	}
	var list []string
	for dir := range strings.SplitSeq(path, ":") {
		if strings.HasPrefix(dir, "/") {
			list = append(list, dir+"/"+name)
		}
	}
	return list
}

// tagBase makes the limit by which the processes of an execution are known
// again: a time in microseconds that no process can reach, different for each
// execution, inherited by every child, and that no process can raise again.
const tagBase = 1 << 62

// script writes the child down.
func (s *Server) script(m *execMsg, io *stdio, tag uint64) *vfork.Script {
	c := &s.child // one at a time, under s.mu
	c.Clear()
	c.Reset()
	c.Do("setsid", unix.SYS_SETSID)
	// The sources lie above 2, so they can be placed in any order.
	for i, fd := range io.fds {
		c.Do("dup3", unix.SYS_DUP3, uintptr(fd), uintptr(i), 0)
	}
	c.Try("close_range", unix.SYS_CLOSE_RANGE, 3, ^uintptr(0), 0)
	if m.flags&(execTerminal|execControl) != 0 {
		c.Do("ioctl TIOCSCTTY", unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0)
	}
	limit := func(l Rlimit, must bool) {
		v := &[2]uint64{l.Soft, l.Hard}
		c.Keep(v)
		add := c.Try
		if must {
			add = c.Do
		}
		add("setrlimit", unix.SYS_PRLIMIT64, 0, uintptr(l.Resource), uintptr(unsafe.Pointer(v)), 0)
	}
	if s.opt.Files.Max != 0 {
		limit(Rlimit{unix.RLIMIT_NOFILE, s.opt.Files.Cur, s.opt.Files.Max}, false)
	}
	limit(Rlimit{unix.RLIMIT_RTTIME, tag, tag}, false)
	for _, l := range m.rlimits {
		limit(l, true)
	}
	c.Do("umask", unix.SYS_UMASK, uintptr(m.umask))
	if u := m.user; u != nil && !s.isSelf(u) {
		groups := append(make([]uint32, 0, 1+len(u.Groups)), u.Groups...)
		c.Keep(groups)
		c.Do("setgroups", unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))))
		gid, uid := uintptr(u.GID), uintptr(u.UID)
		c.Do("setresgid", unix.SYS_SETRESGID, gid, gid, gid)
		c.Do("setresuid", unix.SYS_SETRESUID, uid, uid, uid)
	}
	c.Do("chdir", unix.SYS_CHDIR, c.Str(m.dir))
	c.Unblock()
	argv, env := c.Strs(m.argv), c.Strs(m.env)
	for _, p := range candidates(m.argv[0], m.env) {
		c.Exec(p, argv, env)
	}
	return c
}

// isSelf reports whether u is who this process is already, so that a sandbox
// with one id and no right to change it can still name it.
func (s *Server) isSelf(u *User) bool {
	return len(u.Groups) == 0 && unix.Geteuid() != 0 && int(u.UID) == unix.Geteuid() && int(u.GID) == unix.Getegid()
}

// start starts a command. s.mu is held, so that its end cannot be reaped
// before it is known.
func (s *Server) start(m *execMsg, fds []int) (*execution, error) {
	io, err := s.openStdio(m, fds)
	if err != nil {
		return nil, err
	}
	s.seq++
	e := &execution{s: s, id: m.id, tag: tagBase + s.seq, started: time.Now(), state: StateRunning, tty: m.flags&execTerminal != 0}
	e.room.L = &e.mu
	pid, err := s.script(m, io, e.tag).Start()
	s.child.Clear()
	io.closeAll(err != nil)
	if err != nil {
		if pid > 0 {
			var ws syscall.WaitStatus
			for {
				if _, werr := syscall.Wait4(pid, &ws, unix.WALL, nil); werr != syscall.EINTR {
					break
				}
			}
		}
		var ve *vfork.Error
		errors.As(err, &ve)
		return nil, &failure{kind: failNotStarted, errno: uint16(ve.Errno), step: ve.Step}
	}
	e.pid = pid
	s.execs[e.id] = e
	s.byPid[pid] = e
	if io.master >= 0 {
		e.master = os.NewFile(uintptr(io.master), "terminal")
	}
	for i, fd := range io.out {
		if fd >= 0 {
			e.out[i] = newOutStream(e, i, os.NewFile(uintptr(fd), "output"))
		}
	}
	for _, o := range e.out {
		if o != nil {
			go o.read()
		}
	}
	if io.in >= 0 {
		e.in = newInStream(e, os.NewFile(uintptr(io.in), "input"), false)
	}
	if m.timeout > 0 {
		e.timer = time.AfterFunc(m.timeout, func() { e.timeout(m.grace) })
	}
	return e, nil
}

// reply answers frameExec and frameAttach, and makes the owner the one who
// listens. s.mu is held.
func (c *session) reply(req uint32, e *execution, offsets [2]int64, existing bool) {
	e.openTerminalStreams(c.passes)
	e.mu.Lock()
	defer e.mu.Unlock()
	m := execReply{existing: existing, terminal: e.tty, pid: uint32(e.pid), state: e.state, end: e.end}
	var ready []source
	for i, o := range e.out {
		if o == nil {
			continue
		}
		m.streams |= 2 << i
		m.base[i] = o.attach(offsets[i])
		ready = append(ready, o.to)
	}
	if in := e.in; in != nil {
		m.streams |= 1
		m.stdin, m.written, m.shut = in.received, in.written, in.eof || in.closed
	}
	var fds []int
	if e.tty && c.passes && e.master != nil && e.out[0] == nil {
		if raw, err := e.master.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) {
				if nfd, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); err == nil {
					fds = []int{nfd}
				}
			})
		}
	}
	e.link = c.l
	c.l.sendFDs(frameAnswer, req, fds, m.put)
	for _, o := range ready {
		c.l.ready(o)
	}
}

// openTerminalStreams makes a terminal's bytes go over the protocol, once,
// where its descriptor cannot go to the owner.
func (e *execution) openTerminalStreams(passes bool) {
	if !e.tty || passes || e.out[0] != nil || e.master == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.out[0] = newOutStream(e, 0, e.master)
	e.in = newInStream(e, e.master, true)
	go e.out[0].read()
}

// attach answers frameAttach.
func (c *session) attach(req uint32, m attachMsg) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	e := c.s.execs[m.id]
	if e == nil {
		c.fail(req, failMsg(*errNoExec))
		return nil
	}
	for i, o := range e.out {
		if o != nil && !o.has(m.offsets[i]) {
			return errMessage
		}
	}
	c.reply(req, e, m.offsets, true)
	return nil
}

// detach makes nobody listen, if it was l who did.
func (e *execution) detach(l *link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.link == l {
		e.link = nil
	}
}

// release closes what is held for the owner.
func (e *execution) release() {
	e.mu.Lock()
	e.released = true
	e.link = nil
	if e.timer != nil {
		e.timer.Stop()
	}
	e.room.Broadcast()
	e.mu.Unlock()
	for _, o := range e.out {
		if o != nil {
			o.f.Close()
		}
	}
	if e.in != nil {
		e.in.close()
	}
	if e.master != nil {
		e.master.Close()
	}
}

func (s *Server) resize(m resizeMsg) error {
	e := s.find(m.id)
	if e == nil {
		return errNoExec
	}
	if e.master == nil {
		return &failure{kind: failUsage, text: "it has no terminal of the sandbox's own"}
	}
	raw, err := e.master.SyscallConn()
	if err != nil {
		return stepErr("resize", err)
	}
	w := m.window
	var ierr error
	if err := raw.Control(func(fd uintptr) {
		ierr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Cols, Xpixel: w.XPixel, Ypixel: w.YPixel})
	}); err != nil {
		return stepErr("resize", err)
	}
	return stepErr("resize", ierr)
}
