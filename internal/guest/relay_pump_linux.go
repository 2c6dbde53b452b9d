//go:build linux && (amd64 || arm64)

package guest

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pump moves one output to the owner until its end. What cannot be written any more goes
// nowhere, and whoever writes it inside is told.
func (x *relayed) pump(i int, from *Output) {
	defer x.r.pumping(-1)
	acked := int64(-1)
	for {
		b, end, more, err := from.next()
		if err != nil {
			break
		}
		x.r.memory.touch()
		x.mu.Lock()
		f := x.out[i]
		// What was on its way when the memory was written down comes again.
		again := min(max(0, x.had[i]-(end-int64(len(b)))), int64(len(b)))
		x.mu.Unlock()
		if f != nil {
			if err := x.write(f, b[again:]); err != nil {
				x.deaf(i, f)
			}
		}
		x.wrote(i, end)
		if !more || end-acked >= MaxUnacked/8 {
			from.Ack(end)
			acked = end
		}
	}
	x.mu.Lock()
	f := x.out[i]
	x.out[i], x.closed[i] = nil, true
	if x.tty && x.stdin == f {
		x.stdin = nil
	}
	x.mu.Unlock()
	if f != nil {
		f.Close()
	}
	x.settle()
}

// write writes all of b, and counts what is taken of it.
func (x *relayed) write(f *os.File, b []byte) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	for len(b) > 0 {
		var n int
		var werr error
		if err := raw.Write(func(fd uintptr) bool {
			for {
				if n, werr = unix.Write(int(fd), b); werr != unix.EINTR {
					return werr != unix.EAGAIN
				}
			}
		}); err != nil {
			return err
		}
		if werr != nil {
			return werr
		}
		b = b[n:]
		x.mu.Lock()
		x.moved += int64(n)
		x.mu.Unlock()
	}
	return nil
}

// deaf notes that nobody reads an output any more.
func (x *relayed) deaf(i int, f *os.File) {
	x.mu.Lock()
	mine := x.out[i] == f
	if mine {
		x.out[i] = nil
	}
	tty := x.tty
	x.mu.Unlock()
	if !mine {
		return
	}
	f.Close()
	if !tty && x.r.c.version >= 3 {
		x.p.send(frameAck, ackMsg{id: x.id, stream: uint8(i + 1), closed: true, offset: x.p.out[i].ackedNow()}.put)
		x.p.out[i].lost(os.ErrClosed) // no end of it comes any more
	}
}

// wrote notes how far an output has come.
func (x *relayed) wrote(i int, offset int64) {
	x.mu.Lock()
	x.written[i] = offset
	waits := x.end != nil && !x.told
	x.mu.Unlock()
	if waits {
		x.settle()
	}
}

// buffers are those of inputs that have something to read just now.
var buffers = sync.Pool{New: func() any { return new([maxChunk]byte) }}

// feed moves the owner's input inside until its end.
func (x *relayed) feed(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	for {
		var b *[maxChunk]byte
		n := 0
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			b = buffers.Get().(*[maxChunk]byte)
			for {
				if n, rerr = unix.Read(int(fd), b[:]); rerr != unix.EINTR {
					break
				}
			}
			if rerr == unix.EAGAIN {
				buffers.Put(b)
				return false
			}
			return true
		})
		if err != nil { // closed here
			return
		}
		if n > 0 && rerr == nil {
			_, rerr = x.p.fed.Write(b[:n])
		} else {
			n = 0
		}
		buffers.Put(b)
		if n > 0 && rerr == nil {
			continue
		}
		if n == 0 && !x.tty {
			x.p.fed.Close()
		}
		x.closeStdin()
		return
	}
}

// closeStdin tells the owner that nobody reads the input any more. A terminal stays.
func (x *relayed) closeStdin() {
	x.mu.Lock()
	f := x.stdin
	if x.tty {
		f = nil
	} else {
		x.stdin = nil
	}
	x.mu.Unlock()
	if f != nil {
		f.Close()
	}
}

// follow takes what happens to the execution.
func (x *relayed) follow() {
	for ev := range x.p.events {
		if ev.Kind == EventEnded {
			continue
		}
		x.mu.Lock()
		x.state = StateRunning
		if ev.Kind == EventStopped {
			x.state = StateStopped
		}
		m := eventMsg{id: x.id, kind: ev.Kind, sig: uint8(ev.Signal)}
		if x.owner.o != nil && !x.owner.o.l.crowded() {
			x.owner.send(frameEvent, 0, nil, m.put)
		}
		x.mu.Unlock()
	}
	<-x.p.ended
	x.p.mu.Lock()
	end, lost := x.p.end, x.p.lostErr
	x.p.mu.Unlock()
	if lost != nil {
		return
	}
	x.mu.Lock()
	x.end = &end
	x.mu.Unlock()
	x.settle()
	x.patience(-1)
}

// stuckAfter is how long the end of a command waits for an owner that takes none of what is
// left of its output.
const stuckAfter = 2 * time.Second

// patience tells the end once the owner has taken nothing for long: before is what it had
// taken the last time.
func (x *relayed) patience(before int64) {
	x.mu.Lock()
	told, moved := x.told, x.moved
	x.stuck = moved == before
	x.mu.Unlock()
	switch {
	case told:
	case moved == before:
		x.settle()
	default:
		time.AfterFunc(stuckAfter, func() { x.patience(moved) })
	}
}

// settle tells the end once what the main process has printed is the owner's, and lets go
// of what is over.
func (x *relayed) settle() {
	x.mu.Lock()
	if x.end == nil {
		x.mu.Unlock()
		return
	}
	all, mine := true, true
	for i, closed := range x.closed {
		all = all && closed
		mine = mine && (closed || x.stuck || x.written[i] >= x.end.Output[i])
	}
	tell := mine && !x.told
	if tell {
		x.told = true
		m := eventMsg{id: x.id, kind: EventEnded, end: x.toldEnd()}
		x.owner.send(frameEvent, 0, nil, m.put)
	}
	over := x.told && all
	x.mu.Unlock()
	if tell {
		x.r.toldEnd(x)
	}
	if over {
		x.closeStdin()
		x.r.c.forgetProc(x.p)
	}
}

// toldEnd bounds how many executions that have ended are remembered, as inside.
func (r *Relay) toldEnd(x *relayed) {
	r.mu.Lock()
	r.told = append(r.told, x.id)
	var old *relayed
	if len(r.execs) > MaxExecs {
		old = r.execs[r.told[0]]
		delete(r.execs, r.told[0])
		r.told = r.told[1:]
	}
	r.mu.Unlock()
	if old != nil {
		old.release()
	}
}

// forget drops an execution that the inside has forgotten.
func (r *Relay) forget(id string) {
	r.mu.Lock()
	x := r.execs[id]
	delete(r.execs, id)
	for i, have := range r.told {
		if have == id {
			r.told = append(r.told[:i], r.told[i+1:]...)
			break
		}
	}
	r.mu.Unlock()
	if x != nil {
		x.release()
	}
}

// release lets go of all that is held for the owner.
func (x *relayed) release() {
	x.mu.Lock()
	files := []*os.File{x.stdin, x.out[0], x.out[1], x.master}
	x.stdin, x.out, x.master = nil, [2]*os.File{}, nil
	x.mu.Unlock()
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
	if x.p != nil {
		x.r.c.forgetProc(x.p)
		for _, o := range x.p.out {
			if o != nil {
				o.close()
			}
		}
	}
}
