//go:build linux && (amd64 || arm64)

package vfork

import (
	"runtime"
	"syscall"
	"unsafe"
)

// step is one system call of the child. Its layout is known to the assembly.
type step struct {
	nr       uintptr
	args     [6]uintptr
	tolerate uint64  // bit e: errno e is no failure
	out      uintptr // what the call returned
}

// Script is a list of system calls that ends in one or more Exec. The zero
// value is ready. It is built and started by one goroutine.
type Script struct {
	steps []step
	names []string
	keep  []any // what the arguments point at
}

// Errno sets for tolerate.
func tolerating(errnos ...syscall.Errno) (m uint64) {
	for _, e := range errnos {
		m |= 1 << e
	}
	return m
}

// Do appends a call whose failure ends the child.
func (s *Script) Do(name string, nr uintptr, args ...uintptr) { s.add(name, 0, nr, args) }

// Try appends a call whose failure does not matter.
func (s *Script) Try(name string, nr uintptr, args ...uintptr) { s.add(name, ^uint64(0), nr, args) }

func (s *Script) add(name string, tolerate uint64, nr uintptr, args []uintptr) {
	st := step{nr: nr, tolerate: tolerate}
	copy(st.args[:], args)
	s.steps = append(s.steps, st)
	s.names = append(s.names, name)
}

// Keep makes p usable as an argument: it stays where it is until Start has
// returned. Only what a Script needs is kept in memory that does not move,
// which is all of Go's heap.
func (s *Script) Keep(p any) { s.keep = append(s.keep, p) }

// Str is a NUL-terminated copy of v, as an argument.
func (s *Script) Str(v string) uintptr {
	b := make([]byte, len(v)+1)
	copy(b, v)
	s.keep = append(s.keep, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

// Strs is a NULL-terminated array of strings, as an argument. All bytes are in
// one piece of memory.
func (s *Script) Strs(list []string) uintptr {
	n := 0
	for _, v := range list {
		n += len(v) + 1
	}
	text, ptrs := make([]byte, n+1), make([]*byte, len(list)+1)
	for i, v := range list {
		ptrs[i] = &text[0]
		copy(text, v)
		text = text[len(v)+1:]
	}
	s.keep = append(s.keep, ptrs)
	return uintptr(unsafe.Pointer(&ptrs[0]))
}

// execErrors are what execvp(3) goes on after: the program is not there, or
// may not be executed.
var execErrors = tolerating(syscall.ENOENT, syscall.EACCES, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG)

// Exec appends the execution of path. When it is not there or not executable,
// the next step is tried.
func (s *Script) Exec(path string, argv, envp uintptr) {
	s.add("execve", execErrors, syscall.SYS_EXECVE, []uintptr{s.Str(path), argv, envp})
}

// Error says which step failed, and how.
type Error struct {
	Step  string
	Errno syscall.Errno
}

func (e *Error) Error() string { return e.Step + ": " + e.Errno.Error() }

// Unwrap gives the errno.
func (e *Error) Unwrap() error { return e.Errno }

func clone(first, end unsafe.Pointer, failed *unsafe.Pointer) (pid uintptr)

var zeroAction [32]byte // struct sigaction of the kernel with SIG_DFL, larger than on either machine

// signals that a process cannot change.
const sigKill, sigStop = 9, 19

// Clear empties the script and keeps its memory, for the next child.
func (s *Script) Clear() {
	clear(s.keep)
	s.steps, s.names, s.keep = s.steps[:0], s.names[:0], s.keep[:0]
}

// Reset appends what undoes the Go runtime's signal handling, which the child
// shares: every signal back to its default. It must come first; the last step
// before Exec is Unblock.
func (s *Script) Reset() {
	for sig := uintptr(1); sig <= 64; sig++ {
		if sig != sigKill && sig != sigStop {
			s.Try("rt_sigaction", syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&zeroAction)), 0, 8)
		}
	}
}

var noSignals [8]byte

// Unblock appends the unblocking of all signals.
func (s *Script) Unblock() {
	const setmask = 2
	s.Do("rt_sigprocmask", syscall.SYS_RT_SIGPROCMASK, setmask, uintptr(unsafe.Pointer(&noSignals)), 0, 8)
}

// Start runs the script in a child and returns once it has executed a program
// or given up. A child that gave up is still the caller's to reap, under the
// pid that is returned beside the *Error; the pid is 0 when there was none.
func (s *Script) Start() (pid int, err error) {
	var failed unsafe.Pointer
	all, old := ^uint64(0), uint64(0)
	const setmask = 2
	first := unsafe.Pointer(&s.steps[0])
	end := unsafe.Add(first, uintptr(len(s.steps))*unsafe.Sizeof(step{}))
	where := &failed // on the heap: the child stores through it

	// No signal may reach a Go handler in the child, which would run it on the
	// parent's stack; so all are blocked from before the clone.
	runtime.LockOSThread()
	_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setmask, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	if e != 0 {
		runtime.UnlockOSThread()
		return 0, &Error{"rt_sigprocmask", e}
	}
	r := clone(first, end, where)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setmask, uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
	runtime.UnlockOSThread()
	defer runtime.KeepAlive(s)
	if r > ^uintptr(4095) {
		return 0, &Error{"clone", syscall.Errno(-r)}
	}
	if *where == nil {
		return int(r), nil
	}
	return int(r), s.failure(int((uintptr(*where) - uintptr(first)) / unsafe.Sizeof(step{})))
}

// failure names what went wrong when the child stopped at step i. Past the
// end, no program could be executed: as execvp(3) says, one that is there but
// may not be executed is the better reason.
func (s *Script) failure(i int) *Error {
	if i < len(s.steps) {
		return &Error{s.names[i], syscall.Errno(-s.steps[i].out)}
	}
	worst := syscall.ENOENT
	for j := range s.steps {
		if s.names[j] == "execve" {
			if e := syscall.Errno(-s.steps[j].out); e != syscall.ENOENT && e != syscall.ENOTDIR && worst != syscall.EACCES {
				worst = e
			}
		}
	}
	return &Error{"execve", worst}
}
