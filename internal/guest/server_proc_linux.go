//go:build linux && (amd64 || arm64)

package guest

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// scan lists the processes of the sandbox and says to which execution each
// belongs: the one whose tag it inherited (see tagBase); else, for a process
// that changed that limit, the one whose session it is in; else that of its
// parent. What has lost all three belongs to nobody, and only the end of the
// sandbox ends it.
func (s *Server) scan() ([]ProcessInfo, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, stepErr("open /proc", err)
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return nil, stepErr("read /proc", err)
	}
	s.mu.Lock()
	tags, sessions := make(map[uint64]string, len(s.execs)), make(map[int]string, len(s.execs))
	for id, e := range s.execs {
		tags[e.tag] = id
		if s.byPid[e.pid] == e {
			sessions[e.pid] = id
		}
	}
	s.mu.Unlock()
	var list []ProcessInfo
	at := map[int]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, ok := readStat(pid)
		if !ok {
			continue
		}
		if tag := readTag(pid); tag >= tagBase {
			p.Exec = tags[tag]
		} else if id, ok := sessions[p.Session]; ok {
			p.Exec = id
		}
		at[pid] = len(list)
		list = append(list, p)
	}
	for i := range list {
		for p, n := i, 0; list[i].Exec == "" && n < len(list); n++ {
			parent, ok := at[list[p].Parent]
			if !ok || list[parent].Pid == 1 {
				break
			}
			list[i].Exec = list[parent].Exec
			p = parent
		}
	}
	return list, nil
}

// readStat reads /proc/PID/stat. The name in it is the process's own choice,
// with any bytes, so everything else is found from its last parenthesis on.
func readStat(pid int) (p ProcessInfo, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return p, false
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return p, false
	}
	return parseStat(pid, st.Uid, b)
}

func parseStat(pid int, uid uint32, b []byte) (p ProcessInfo, ok bool) {
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || shut < open {
		return p, false
	}
	f := strings.Fields(string(b[shut+1:]))
	if len(f) < 4 || len(f[0]) != 1 {
		return p, false
	}
	p = ProcessInfo{Pid: pid, State: f[0][0], UID: uid, Command: string(bytes.ReplaceAll(b[open+1:shut], []byte{0}, nil))}
	p.Command = p.Command[:min(len(p.Command), maxCommand)]
	for i, v := range [...]*int{&p.Parent, &p.Group, &p.Session} {
		n, err := strconv.Atoi(f[1+i])
		if err != nil || n < 0 || n > 1<<22 {
			return p, false
		}
		*v = n
	}
	return p, true
}

// readTag reads the limit that marks the processes of an execution; 0 when
// there is none. Unlike prlimit(2), reading it here needs no right over the
// process.
func readTag(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0
	}
	return parseTag(b)
}

func parseTag(b []byte) uint64 {
	const name = "Max realtime timeout"
	_, line, ok := bytes.Cut(b, []byte(name))
	if !ok {
		return 0
	}
	line, _, _ = bytes.Cut(line, []byte{'\n'})
	f := bytes.Fields(line)
	if len(f) < 2 {
		return 0
	}
	v, err := strconv.ParseUint(string(f[1]), 10, 64) // the hard limit: the soft one can be moved below it
	if err != nil {
		return 0
	}
	return v
}

// signal sends a signal to an execution.
func (s *Server) signal(m signalMsg) error {
	e := s.find(m.id)
	if e == nil {
		return errNoExec
	}
	sig := syscall.Signal(m.sig)
	if m.scope == ScopeAll {
		if e.killAll(sig) == 0 {
			return stepErr("kill", syscall.ESRCH)
		}
		return nil
	}
	// Under s.mu the main process cannot be reaped, so its number is its own.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byPid[e.pid] != e {
		return stepErr("kill", syscall.ESRCH)
	}
	pid := e.pid
	if m.scope == ScopeGroup {
		pid = -pid
	}
	return stepErr("kill", unix.Kill(pid, sig))
}

// killRounds bounds how often a kill of everything looks again for what was
// started meanwhile. Each round kills all it sees, so only a fork bomb needs
// more than a few; its cgroup's owner ends that.
//
// What was killed needs a processor to end, and on a busy machine it may wait for
// one: after hurriedRounds there are longer and longer pauses, two seconds in all.
const (
	killRounds    = 64
	hurriedRounds = 8
)

// killAll signals every process that belongs to the execution, and gives how
// many there were. SIGKILL is repeated until none is left.
func (e *execution) killAll(sig syscall.Signal) int {
	total := 0
	for round := range killRounds {
		time.Sleep(time.Duration(max(0, round-hurriedRounds)) * time.Millisecond)
		list, err := e.s.scan()
		if err != nil {
			// Without /proc, the group of the main process is what can be found.
			e.s.mu.Lock()
			defer e.s.mu.Unlock()
			if e.s.byPid[e.pid] == e && unix.Kill(-e.pid, sig) == nil {
				total++
			}
			return total
		}
		n := 0
		for _, p := range list {
			if p.Exec == e.id && p.State != 'Z' && p.State != 'X' && p.Pid != unix.Getpid() && unix.Kill(p.Pid, sig) == nil {
				n++
			}
		}
		total += n
		if n == 0 || sig != syscall.SIGKILL {
			break
		}
	}
	return total
}

// timeout ends the execution because its time is over.
func (e *execution) timeout(grace time.Duration) {
	e.mu.Lock()
	if e.state == StateEnded {
		e.mu.Unlock()
		return
	}
	e.timedOut = true
	if grace > 0 {
		e.timer = time.AfterFunc(grace, func() { e.killAll(syscall.SIGKILL) })
	}
	e.mu.Unlock()
	if grace > 0 {
		e.killAll(syscall.SIGTERM)
		e.killAll(syscall.SIGCONT)
		return
	}
	e.killAll(syscall.SIGKILL)
}

// statuses gives what frameExecs and frameStatus answer, for one id or all.
func (s *Server) statuses(id string) ([]ExecStatus, error) {
	procs, err := s.scan()
	if err != nil {
		return nil, err
	}
	left := map[string]int{}
	for _, p := range procs {
		if p.State != 'Z' && p.State != 'X' {
			left[p.Exec]++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []ExecStatus
	for _, e := range s.execs {
		if id == "" || e.id == id {
			e.mu.Lock()
			list = append(list, ExecStatus{ID: e.id, State: e.state, Pid: e.pid, End: e.end, Left: left[e.id]})
			e.mu.Unlock()
		}
	}
	return list, nil
}

func (c *session) status(req uint32, id string) {
	list, err := c.s.statuses(id)
	if err == nil && len(list) == 0 {
		err = errNoExec
	}
	if err != nil {
		c.answerErr(req, err)
		return
	}
	c.l.send(frameAnswer, req, func(b []byte) []byte { return putStatus(b, &list[0]) })
}

// addEntropy mixes bytes into the kernel's random numbers and makes it reseed,
// so that two sandboxes restored from one snapshot part ways. It needs the
// rights that only a sandbox with a kernel of its own has.
func addEntropy(p []byte) error {
	fd, err := unix.Open("/dev/urandom", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return stepErr("open /dev/urandom", err)
	}
	defer unix.Close(fd)
	// struct rand_pool_info: the entropy in bits, the size in bytes, the bytes.
	b := append(putU32(putU32(nil, uint32(len(p)*8)), uint32(len(p))), p...)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDADDENTROPY, bytesPointer(b)); e != 0 {
		return stepErr("RNDADDENTROPY", e)
	}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDRESEEDCRNG, 0); e != 0 {
		return stepErr("RNDRESEEDCRNG", e)
	}
	return nil
}
