package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/microvm/share"
)

// Suspended is a machine that stands still, beside its memory, which is the file
// Config.RAM. It is bound to the build of the monitor, the kernel and the processor. Any number of
// machines can go on from it at once, each with memory of its own where it writes: the file must stay as it is
// for as long as they live.
type Suspended struct {
	// Removed is the folder with what programs had open that has no name any more.
	Removed string      `json:"removed"`
	Device  []byte      `json:"device"` // the state of its devices
	Files   share.State `json:"files"`
}

// migrate is what is asked of the monitor on both sides: memory that is a file's stays there.
var migrate = map[string]any{"capabilities": []map[string]any{
	{"capability": "x-ignore-shared", "state": true}, {"capability": "events", "state": true},
}}

// Suspend ends the machine and gives what it takes to go on; files that are open and have no name any
// more are kept in the folder removed. When it fails the machine may have ended.
// Whoever speaks to bailey-init in it says nothing meanwhile, and keeps the stream open: bailey-init takes
// its end for the end of its owner.
func (m *Machine) Suspend(ctx context.Context, removed string) (s Suspended, err error) {
	defer func() {
		if err != nil {
			m.Kill()
			err = bailey.Errorf(bailey.CodeSetupFailed, "suspend the virtual machine", "", "%w", err)
		}
	}()
	// Requests that are begun are answered, and the answers have arrived, before the machine
	// stops: what is on its way then would be lost.
	m.suspending.Store(true)
	m.share.Hold()
	if err := m.taken(ctx); err != nil {
		return s, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return s, err
	}
	defer r.Close()
	_, err = m.ctl.Do(ctx, "migrate-set-capabilities", migrate)
	if err == nil {
		err = m.ctl.Give(ctx, "state", w)
	}
	w.Close()
	if err != nil {
		return s, err
	}
	type read struct {
		b   []byte
		err error
	}
	state := make(chan read, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(r, maxDevice+1))
		state <- read{b, err}
	}()
	if _, err := m.ctl.Do(ctx, "migrate", map[string]any{"uri": "fd:state"}); err != nil {
		return s, err
	}
	e, err := m.ctl.Await(ctx, "MIGRATION completed", "MIGRATION failed", "MIGRATION cancelled")
	if err != nil {
		return s, err
	}
	if e != "MIGRATION completed" {
		return s, errors.New("the monitor could not write its state")
	}
	select {
	case got := <-state:
		if s.Device, err = got.b, got.err; err == nil && len(got.b) > maxDevice {
			err = fmt.Errorf("its state is larger than %d bytes", maxDevice)
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return s, err
	}
	m.ctl.Do(ctx, "quit", nil) // it may end before it answers
	select {
	case <-m.ended:
	case <-ctx.Done():
		return s, ctx.Err()
	}
	m.served <- <-m.served // no request is being read any more
	s.Removed = removed
	s.Files, err = m.share.State(removed)
	return s, err
}

// maxDevice bounds the state of the devices: without the memory it is a tenth of a megabyte.
const maxDevice = 16 << 20

// taken waits until the monitor has taken all answers from the socket.
func (m *Machine) taken(ctx context.Context) error {
	raw, err := m.files.SyscallConn()
	if err != nil {
		return err
	}
	for {
		left := 0
		var e error
		if err := raw.Control(func(fd uintptr) { left, e = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }); err != nil || e != nil {
			return errors.Join(err, e)
		}
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the machine does not take answers about its files: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// Restore goes on from a suspended machine, whose Config it is given. Its clock stands where it stood, and its
// random numbers are those that any other would have that goes on from the same one: who speaks to bailey-init sets the
// clock and gives entropy before anything else (guest.Client.SetClock and AddEntropy).
func Restore(ctx context.Context, c Config, from Suspended, agent *os.File, log io.Writer) (*Machine, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if fi, err := os.Stat(c.RAM); err != nil || fi.Size() != c.Memory {
		return nil, bailey.Errorf(bailey.CodeRestoreIncomplete, "restore the virtual machine", "start it anew from its files", "its memory, %s, is not there or not %d bytes long: %w", c.RAM, c.Memory, err)
	}
	s, err := share.Resume(share.Options{Dir: c.Root, Live: c.Live}, from.Files, from.Removed)
	if err != nil {
		return nil, err
	}
	m, err := start(c, agent, log, s, true)
	if err != nil {
		return nil, err
	}
	if err := m.load(ctx, from.Device); err != nil {
		m.Kill()
		return nil, bailey.Errorf(bailey.CodeRestoreIncomplete, "restore the virtual machine", "start it anew from its files", "%w", errors.Join(err, m.Wait()))
	}
	return m, nil
}

func (m *Machine) load(ctx context.Context, device []byte) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	go func() {
		io.Copy(w, bytes.NewReader(device))
		w.Close()
	}()
	_, err = m.ctl.Do(ctx, "migrate-set-capabilities", migrate)
	if err == nil {
		err = m.ctl.Give(ctx, "state", r)
	}
	r.Close()
	if err != nil {
		return err
	}
	if _, err := m.ctl.Do(ctx, "migrate-incoming", map[string]any{"uri": "fd:state"}); err != nil {
		return err
	}
	e, err := m.ctl.Await(ctx, "MIGRATION completed", "MIGRATION failed")
	if err == nil && e != "MIGRATION completed" {
		err = errors.New("the monitor could not read the state")
	}
	return err
}
