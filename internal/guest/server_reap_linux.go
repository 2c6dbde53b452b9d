//go:build linux && (amd64 || arm64)

package guest

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reaper waits for children whenever the kernel says that one changed. A
// signal can stand for many, so each one empties the queue.
func (s *Server) reaper() {
	for range s.chld {
		s.mu.Lock()
		if s.opt.ReapAll {
			s.reapAll()
		} else {
			for pid := range s.byPid {
				s.reapOne(pid)
			}
		}
		if len(s.byPid) == 0 {
			s.idle.Broadcast()
		}
		s.mu.Unlock()
	}
}

func (s *Server) reapAll() {
	for s.reapOne(-1) {
	}
}

// reapOne waits for one change of pid, or of any child for -1, if there is
// one. s.mu is held.
func (s *Server) reapOne(pid int) bool {
	var ws syscall.WaitStatus
	var ru syscall.Rusage
	for {
		got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG|syscall.WUNTRACED|syscall.WCONTINUED|unix.WALL, &ru)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || got <= 0 {
			return false
		}
		if e := s.byPid[got]; e != nil {
			e.changed(ws, &ru)
		}
		return true
	}
}

// changed takes a change of the main process. s.mu is held.
func (e *execution) changed(ws syscall.WaitStatus, ru *syscall.Rusage) {
	switch {
	case ws.Stopped():
		e.setState(StateStopped)
		e.event(eventMsg{id: e.id, kind: EventStopped, sig: uint8(ws.StopSignal())})
		return
	case ws.Continued():
		e.setState(StateRunning)
		e.event(eventMsg{id: e.id, kind: EventContinued})
		return
	}
	end := &ExecEnd{Elapsed: time.Since(e.started), Output: e.outputEnd()}
	if ws.Signaled() {
		end.Signal, end.CoreDumped = ws.Signal(), ws.CoreDump()
	} else {
		end.ExitCode = ws.ExitStatus()
	}
	end.Usage = Usage{time.Duration(ru.Utime.Nano()), time.Duration(ru.Stime.Nano()), ru.Maxrss << 10}
	delete(e.s.byPid, e.pid)
	e.mu.Lock()
	if e.timer != nil {
		e.timer.Stop()
	}
	end.TimedOut = e.timedOut
	e.mu.Unlock()
	if !end.TimedOut {
		e.finish(end)
		return
	}
	// The time was for all of it: the end is told once nothing is left.
	go func() {
		e.killAll(syscall.SIGKILL)
		e.s.mu.Lock()
		defer e.s.mu.Unlock()
		e.finish(end)
	}()
}

// finish records the end and tells it. s.mu is held.
func (e *execution) finish(end *ExecEnd) {
	e.mu.Lock()
	e.state, e.end = StateEnded, end
	e.mu.Unlock()
	e.s.ended = append(e.s.ended, e.id)
	e.event(eventMsg{id: e.id, kind: EventEnded, end: end})
}

func (e *execution) setState(st State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != StateEnded {
		e.state = st
	}
}

// event tells the owner, if it listens. An owner that does not read loses
// stops and continuations, never an end.
func (e *execution) event(m eventMsg) {
	e.mu.Lock()
	l := e.link
	e.mu.Unlock()
	if l == nil {
		return
	}
	if m.kind != EventEnded && l.crowded() {
		return
	}
	l.send(frameEvent, 0, m.put)
}

// shutdown ends everything: SIGTERM, grace, SIGKILL; then what was written is
// put on disk, and Serve returns ErrShutdown.
func (c *session) shutdown(req uint32, grace time.Duration) {
	s := c.s
	s.mu.Lock()
	s.quit = true
	s.mu.Unlock()
	if grace > 0 {
		s.killEverything(syscall.SIGTERM)
		s.killEverything(syscall.SIGCONT)
		s.waitIdle(grace)
	}
	s.killEverything(syscall.SIGKILL)
	s.waitIdle(5 * time.Second)
	if s.opt.ReapAll {
		unix.Sync()
	}
	c.l.send(frameAnswer, req, nil)
	c.l.drain(time.Second)
	c.l.fail(ErrShutdown)
}

// killEverything signals every process but this one; without ReapAll, those
// of executions.
func (s *Server) killEverything(sig syscall.Signal) {
	if s.opt.ReapAll && unix.Getpid() == 1 {
		unix.Kill(-1, sig)
		return
	}
	s.mu.Lock()
	var all []*execution
	for _, e := range s.execs {
		all = append(all, e)
	}
	s.mu.Unlock()
	for _, e := range all {
		e.killAll(sig)
	}
}

// waitIdle waits until no execution runs, at most for d.
func (s *Server) waitIdle(d time.Duration) {
	late := false
	t := time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = true
		s.idle.Broadcast()
	})
	defer t.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.byPid) > 0 && !late {
		s.idle.Wait()
	}
}
