package spawn

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// op is one system call as the child's interpreter reads it. The assembly
// knows this layout.
type op struct {
	nr       uintptr    // system call number
	args     [6]uintptr // values, or addresses of values where indirect has the bit
	indirect uintptr    // bit i: args[i] is the address of the value
	out      *uintptr   // where the result goes, or nil
	ignore   uintptr    // errno that is not a failure; anyErrno for all; leaveParent for a clone
	skip     uintptr    // how many ops to skip when an errno was ignored
}

const (
	anyErrno    = 0xffff
	leaveParent = 0xfffe // a result other than zero ends the process: the child goes on with the script
)

// result is what the child leaves behind when a step failed.
type result struct {
	failed uintptr // address of the op that failed, 0 if none
	errno  uintptr
}

// Slot holds the result of a step for later steps of the same Script. It lives
// in memory that parent and child share until the child has executed its
// program.
type Slot struct{ value *uintptr }

// Value gives what the step stored. It is meaningful after Start.
func (s Slot) Value() uintptr { return *s.value }

// Script is a list of system calls for a child process. The zero value is
// ready for use. A Script is built and started by one goroutine.
type Script struct {
	ops   []op
	names []string
	// everything that the ops point to. The garbage collector does not move
	// heap objects; holding the pointers here keeps them alive.
	keep []any
	// heir is where the kernel writes the pid of the child of Again; nil without one.
	heir *uint64
}

// NewScript makes a Script with room for n steps. A Script that grows while it
// is written is copied each time; the zero value is as good for a short one.
func NewScript(n int) *Script {
	return &Script{ops: make([]op, 0, n), names: make([]string, 0, n), keep: make([]any, 0, 2*n)}
}

// Arg is an argument of a Step: an integer, a pointer prepared with one of the
// Script's methods, or a Slot.
type Arg struct {
	value uintptr
	slot  *uintptr
}

// Int is an argument given by value.
func Int(v int) Arg { return Arg{value: uintptr(v)} }

// Uint is an argument given by value.
func Uint(v uintptr) Arg { return Arg{value: v} }

// From is an argument that is the result of an earlier step.
func From(s Slot) Arg { return Arg{slot: s.value} }

// Word is an argument whose value is read from memory when the step runs:
// where an earlier step stored a result with StoreAt.
func Word(p *uint64) Arg { return Arg{slot: (*uintptr)(unsafe.Pointer(p))} }

// Str is a pointer to a NUL-terminated copy of v. A v with a NUL inside would
// name something else than its caller checked, so it is a panic: callers
// validate names first.
func (s *Script) Str(v string) Arg {
	b, err := syscall.ByteSliceFromString(v)
	if err != nil {
		panic(fmt.Sprintf("spawn: string with NUL: %q", v))
	}
	return s.Bytes(b)
}

// Bytes is a pointer to b, which must not be empty and must not change until
// the child has started.
func (s *Script) Bytes(b []byte) Arg { return s.Pointer(unsafe.Pointer(unsafe.SliceData(b))) }

// Pointer is a pointer to memory that the caller laid out.
func (s *Script) Pointer(p unsafe.Pointer) Arg {
	s.keep = append(s.keep, p)
	return Arg{value: uintptr(p)}
}

// Strings is a NULL-terminated array of C strings, as execve wants it.
func (s *Script) Strings(list []string) Arg {
	total := 0
	for _, v := range list {
		total += len(v) + 1
	}
	text := make([]byte, 0, total)
	ptrs := make([]unsafe.Pointer, len(list)+1)
	for i, v := range list {
		at := len(text)
		text = append(text, v...)
		text = append(text, 0)
		ptrs[i] = unsafe.Pointer(&text[:at+1][at])
	}
	s.keep = append(s.keep, text, ptrs)
	return Arg{value: uintptr(unsafe.Pointer(unsafe.SliceData(ptrs)))}
}

// NewSlot makes a place for a result.
func (s *Script) NewSlot() Slot {
	v := new(uintptr)
	s.keep = append(s.keep, v)
	return Slot{v}
}

// Step is one system call of a Script while it is being described.
type Step struct {
	script *Script
	index  int
}

// Do appends a system call. name says what it is for; it is what an error
// reports.
func (s *Script) Do(name string, nr uintptr, args ...Arg) Step {
	var o op
	o.nr = nr
	for i, a := range args {
		if a.slot != nil {
			o.args[i] = uintptr(unsafe.Pointer(a.slot))
			o.indirect |= 1 << i
		} else {
			o.args[i] = a.value
		}
	}
	s.ops = append(s.ops, o)
	s.names = append(s.names, name)
	return Step{s, len(s.ops) - 1}
}

// Again appends a second clone: a new child, in more namespaces, goes on with
// the script, and the first one is gone by the time Start returns. It is for a
// PID namespace that has to be made by a process that has entered another
// namespace before, since such a namespace is for children only. A Script can
// do this once.
func (s *Script) Again(name string, flags uint64) {
	s.heir = new(uint64)
	args := &cloneArgs{
		flags: flags | syscall.CLONE_VM | syscall.CLONE_VFORK | syscall.CLONE_PARENT | syscall.CLONE_PARENT_SETTID,
		// With CLONE_PARENT the child inherits the signal that ends are told by.
		parentTID: uint64(uintptr(unsafe.Pointer(s.heir))),
	}
	s.keep = append(s.keep, s.heir)
	st := s.Do(name, sysClone3, s.Pointer(unsafe.Pointer(args)), Uint(unsafe.Sizeof(*args)))
	s.ops[st.index].ignore = leaveParent
}

// sysClone3 is the number of clone3 on every architecture.
const sysClone3 = 435

// Result makes the step store its result and returns where.
func (st Step) Result() Slot {
	slot := st.script.NewSlot()
	st.script.ops[st.index].out = slot.value
	return slot
}

// StoreAt makes the step store its result, as a machine word, at p: into a
// structure that a later step passes by address.
func (st Step) StoreAt(p unsafe.Pointer) Step {
	st.script.keep = append(st.script.keep, p)
	st.script.ops[st.index].out = (*uintptr)(p)
	return st
}

// Ignore makes one errno no failure.
func (st Step) Ignore(errno syscall.Errno) Step {
	st.script.ops[st.index].ignore = uintptr(errno)
	return st
}

// IgnoreAll makes no errno a failure: for steps that are only a courtesy.
func (st Step) IgnoreAll() Step {
	st.script.ops[st.index].ignore = anyErrno
	return st
}

// ElseSkip makes an ignored errno skip the following n steps.
func (st Step) ElseSkip(n int) Step {
	st.script.ops[st.index].skip = uintptr(n)
	return st
}

// Steps gives the names of the steps in order.
func (s *Script) Steps() []string { return s.names }

// StepError says which step of a Script failed.
type StepError struct {
	Step  string
	Index int
	Errno syscall.Errno
}

func (e *StepError) Error() string { return fmt.Sprintf("%s: %v", e.Step, e.Errno) }

// Unwrap gives the errno.
func (e *StepError) Unwrap() error { return e.Errno }

// Process is a child that a Script started.
type Process struct {
	Pid   int
	Pidfd int // close-on-exec; the caller closes it
}

// Options say how the child is cloned.
type Options struct {
	// Flags are CLONE_NEW* flags. Nothing else is accepted.
	Flags uint64
	// Cgroup is a descriptor of a cgroup v2 folder to start in, or -1.
	Cgroup int
	// NoWait lets Start return while the child still works. The parent shares
	// its memory with the child meanwhile, so the Script must be kept (and the
	// child waited for) by the caller. For children that hold a namespace.
	NoWait bool
}

// cloneArgs is struct clone_args of clone3(2), up to the field cgroup (88
// bytes, Linux 5.7).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

const (
	cloneNamespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUSER |
		syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | cloneNewCgroup | CloneNewTime
	cloneNewCgroup    = 0x02000000
	cloneClearSighand = 0x100000000
	cloneIntoCgroup   = 0x200000000
	// CloneNewTime is CLONE_NEWTIME, which package syscall lacks.
	CloneNewTime = 0x00000080
)

// Start runs the script in a new child and returns once the child has
// executed its program. When a step fails the child is reaped and the error is
// a *StepError.
func (s *Script) Start(opt Options) (*Process, error) {
	if opt.Flags&^cloneNamespaces != 0 {
		return nil, fmt.Errorf("spawn: clone flags %#x are not namespaces", opt.Flags)
	}
	if len(s.ops) == 0 {
		return nil, fmt.Errorf("spawn: empty script")
	}
	// A whole word, as the kernel writes an int through it, and on the heap: it
	// is kept like all that the child sees, since a stack moves when it grows and
	// the kernel would write to where it was.
	pidfd := new(int64)
	*pidfd = -1
	s.keep = append(s.keep, pidfd)
	args := &cloneArgs{
		flags: opt.Flags | syscall.CLONE_VM | cloneClearSighand | syscall.CLONE_PIDFD,
		pidfd: uint64(uintptr(unsafe.Pointer(pidfd))), exitSignal: uint64(syscall.SIGCHLD),
	}
	if !opt.NoWait {
		args.flags |= syscall.CLONE_VFORK
	}
	if opt.Cgroup >= 0 {
		args.flags |= cloneIntoCgroup
		args.cgroup = uint64(opt.Cgroup)
	}
	res := new(result)
	s.keep = append(s.keep, res)

	// A signal handler of the Go runtime must not run in the child: all signals
	// are blocked around the clone, and the child resets the dispositions. The
	// script unblocks them again as one of its last steps.
	runtime.LockOSThread()
	all, old := ^uint64(0), uint64(0)
	if errno := sigprocmask(&all, &old); errno != 0 {
		runtime.UnlockOSThread()
		return nil, errno
	}
	pid, errno := clone(args, &s.ops[0], uintptr(len(s.ops)), res)
	sigprocmask(&old, nil)
	runtime.UnlockOSThread()
	runtime.KeepAlive(s)
	runtime.KeepAlive(args)
	if errno != 0 {
		return nil, &StepError{Step: "clone", Index: -1, Errno: errno}
	}
	p := &Process{Pid: int(pid), Pidfd: int(int32(*pidfd))}
	if s.heir != nil && *s.heir != 0 {
		p.Reap() // it has left, or leaves right now
		heir := &Process{Pid: int(int32(*s.heir)), Pidfd: -1}
		// Nobody else reaps it, so the pid is still its own.
		fd, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(heir.Pid), 0, 0)
		if errno != 0 {
			syscall.Kill(heir.Pid, syscall.SIGKILL)
			heir.Reap()
			return nil, &StepError{Step: "pidfd_open", Index: -1, Errno: errno}
		}
		heir.Pidfd = int(fd)
		syscall.CloseOnExec(heir.Pidfd)
		p = heir
	}
	if opt.NoWait || res.failed == 0 {
		return p, nil
	}
	index := int((res.failed - uintptr(unsafe.Pointer(&s.ops[0]))) / unsafe.Sizeof(op{}))
	p.Reap()
	return nil, &StepError{Step: s.names[index], Index: index, Errno: syscall.Errno(res.errno)}
}

// sysPidfdOpen is the number of pidfd_open on every architecture.
const sysPidfdOpen = 434

// Reap waits for the child to end and closes the pidfd.
func (p *Process) Reap() (syscall.WaitStatus, error) {
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.Pid, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if p.Pidfd >= 0 {
			syscall.Close(p.Pidfd)
			p.Pidfd = -1
		}
		return ws, err
	}
}

func sigprocmask(set, old *uint64) syscall.Errno {
	const sigSetmask = 2
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask,
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
	return errno
}
