package linux

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// first is a sandbox's first process. It is signalled and waited for through a
// pidfd, which means the same process whatever becomes of its number. Waiting
// takes a goroutine and no thread, so that thousands cost little.
type first struct {
	pid   int
	pidfd *os.File
	raw   syscall.RawConn
	// told gives the status of one that is no child of this process from whoever
	// has reaped it; nil where nobody does.
	told func(context.Context) (syscall.WaitStatus, error)
}

// newFirst takes over a pidfd.
func newFirst(pid, pidfd int) (*first, error) {
	unix.SetNonblock(pidfd, true) // so that the runtime's poller takes it
	p := &first{pid: pid, pidfd: os.NewFile(uintptr(pidfd), "pidfd")}
	var err error
	p.raw, err = p.pidfd.SyscallConn()
	return p, err
}

// born takes over a process that was just started.
func born(proc *spawn.Process) (*first, error) { return newFirst(proc.Pid, proc.Pidfd) }

func (p *first) signal(sig syscall.Signal) (err error) {
	if p.raw == nil { // an adopted one that has ended
		return unix.ESRCH
	}
	if e := p.raw.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); e != nil {
		return e
	}
	return err
}

// ended says whether it has ended, reaped or not.
func (p *first) ended() (yes bool) {
	if p.raw == nil || p.raw.Control(func(fd uintptr) { yes = over(fd) }) != nil {
		return true
	}
	return yes
}

func over(pidfd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return n > 0 || err != nil
		}
	}
}

// await returns when it has ended.
func (p *first) await() {
	if p.raw != nil {
		p.raw.Read(over)
	}
}

// toldWithin bounds the wait for a status from whoever reaps. The process has
// ended by then, so that this takes as long as a message.
const toldWithin = 5 * time.Second

var errNoStatus = errors.New("nobody knows its status")

// status gives the status of a process that has ended (see await), and reaps it if it is this
// process's child.
func (p *first) status() (syscall.WaitStatus, error) {
	if ws, err := p.reap(); err == nil {
		return ws, nil
	}
	if p.told != nil {
		ctx, cancel := context.WithTimeout(context.Background(), toldWithin)
		defer cancel()
		if ws, err := p.told(ctx); err == nil {
			return ws, nil
		}
	}
	return p.remembered()
}

// reap waits for a child. Its number would not do: it may be another child's by now.
func (p *first) reap() (ws syscall.WaitStatus, err error) {
	if p.raw == nil {
		return 0, unix.ECHILD
	}
	// siginfo_t of a child's end, as waitid(2) fills it in on 64-bit machines.
	var info struct {
		signo, errno, code, _ int32
		pid, uid              int32
		status                int32
		_                     [100]byte
	}
	if e := p.raw.Control(func(fd uintptr) {
		for {
			err = unix.Waitid(unix.P_PIDFD, int(fd), (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED, nil)
			if err != unix.EINTR {
				return
			}
		}
	}); e != nil {
		return 0, e
	}
	const exited, dumped = 1, 3 // CLD_EXITED, CLD_DUMPED
	switch info.code {
	case exited:
		return syscall.WaitStatus(info.status&0xff) << 8, err
	case dumped:
		return syscall.WaitStatus(info.status | 0x80), err
	}
	return syscall.WaitStatus(info.status), err
}

// remembered asks the kernel for the status of a process that was reaped by
// somebody who died before telling: since Linux 6.15 a pidfd knows it.
func (p *first) remembered() (syscall.WaitStatus, error) {
	// struct pidfd_info of linux/pidfd.h in its first form.
	if p.raw == nil {
		return 0, errNoStatus
	}
	var info struct {
		mask, cgroup uint64
		ids          [11]uint32
		exit         int32
	}
	const (
		getInfo  = 0xc0_40_ff_0b // _IOWR(0xff, 11, struct pidfd_info)
		infoExit = 1 << 3
	)
	info.mask = infoExit
	var errno syscall.Errno
	if err := p.raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, getInfo, uintptr(unsafe.Pointer(&info)))
	}); err != nil || errno != 0 || info.mask&infoExit == 0 {
		return 0, errNoStatus
	}
	return syscall.WaitStatus(info.exit), nil
}

func (p *first) close() {
	if p.pidfd != nil {
		p.pidfd.Close()
	}
}

// bootID tells one start of the kernel from another.
var bootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})

// startOf gives when a process was started, in clock ticks since the kernel was
// (field 22 of proc(5)'s stat), or 0 when there is none. With bootID it tells a
// process from a later one of its number.
func startOf(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	return parseStart(string(b))
}

func parseStart(stat string) uint64 {
	// The name stands in parentheses and may have any byte in it.
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const at = 22 - 3 // the first of them is field 3
	if len(f) <= at {
		return 0
	}
	n, _ := strconv.ParseUint(f[at], 10, 64)
	return n
}
