// Command inside confines itself and then tries what it must not be able to
// do. It prints a JSON object: the report, and for each attempt the error, ""
// for one that succeeded.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/confine"
)

type answer struct {
	Report confine.Report    `json:"report"`
	Tried  map[string]string `json:"tried"`
	UID    int               `json:"uid"`
	Groups []int             `json:"groups"`
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "program" {
		return
	}
	write, secret, outside := os.Args[1], os.Args[2], os.Args[3]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	// Threads that are there before, each of which has to be confined too.
	hold, held := make(chan struct{}), sync.WaitGroup{}
	threads := make(chan error, 8)
	for range cap(threads) {
		held.Add(1)
		go func() {
			runtime.LockOSThread()
			held.Done()
			<-hold
			_, err := os.ReadFile(secret)
			threads <- err
		}()
	}
	held.Wait()
	report, err := confine.Apply(confine.Config{Read: []string{"/etc/hosts", "/no/such/file"}, Write: []string{write}, Descriptors: 1 << 16})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	a := answer{Report: report, Tried: map[string]string{}, UID: os.Getuid()}
	a.Groups, _ = os.Getgroups()
	try := func(what string, err error) {
		a.Tried[what] = ""
		if err != nil {
			a.Tried[what] = err.Error()
		}
	}
	call := func(trap uintptr, args ...uintptr) error {
		var six [6]uintptr
		copy(six[:], args)
		if _, _, errno := syscall.Syscall6(trap, six[0], six[1], six[2], six[3], six[4], six[5]); errno != 0 {
			return errno
		}
		return nil
	}
	read := func(path string) error {
		f, err := os.Open(path)
		if err == nil {
			f.Close()
		}
		return err
	}
	close(hold)
	var fromThreads error
	for range cap(threads) {
		if err := <-threads; err == nil {
			fromThreads = errors.New("a thread read it")
		}
	}
	try("ok: threads are confined", fromThreads)
	try("ok: read /etc/hosts", read("/etc/hosts"))
	try("ok: write in the folder", os.WriteFile(write+"/log", []byte("x"), 0o600))
	try("ok: append in the folder", func() error {
		f, err := os.OpenFile(write+"/log", os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.WriteString("y"); err != nil {
			return err
		}
		return f.Sync()
	}())
	try("ok: rename in the folder", os.Rename(write+"/log", write+"/log.1"))
	try("ok: connect and accept", func() error {
		c, err := net.DialTimeout("tcp", listener.Addr().String(), 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		s, err := listener.Accept()
		if err != nil {
			return err
		}
		defer s.Close()
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
		_, err = io.ReadFull(s, make([]byte, 5))
		return err
	}())
	try("ok: own addresses", func() error { _, err := net.InterfaceAddrs(); return err }())
	try("ok: threads and garbage", func() error {
		var w sync.WaitGroup
		for range 50 {
			w.Go(func() {
				runtime.LockOSThread()
				_ = make([]byte, 1<<20)
			})
		}
		w.Wait()
		runtime.GC()
		return nil
	}())

	try("read a secret", read(secret))
	try("read /etc/shadow", read("/etc/shadow"))
	try("read /etc/passwd", read("/etc/passwd"))
	try("list /root", func() error { _, err := os.ReadDir("/root"); return err }())
	try("list /", func() error { _, err := os.ReadDir("/"); return err }())
	try("read its own memory map", read("/proc/self/maps"))
	try("read a process", read("/proc/"+strconv.Itoa(os.Getppid())+"/environ"))
	try("write outside", os.WriteFile(outside+"/x", nil, 0o600))
	try("write /tmp", os.WriteFile("/tmp/bailey-confine", nil, 0o600))
	try("write /dev/shm", os.WriteFile("/dev/shm/bailey-confine", nil, 0o600))
	try("link out of the folder", os.Link(write+"/log.1", outside+"/log"))
	try("symbolic link in the folder", os.Symlink("/etc/shadow", write+"/link"))
	try("run a program", exec.Command("/proc/self/exe", "program").Run())
	try("execve", unix.Exec(os.Args[0], []string{"inside", "program"}, nil))
	try("execveat", call(unix.SYS_EXECVEAT, 0, 0, 0, 0, 0))
	try("fork", call(unix.SYS_CLONE, uintptr(unix.SIGCHLD)))
	try("clone3", call(unix.SYS_CLONE3))
	try("ptrace", unix.PtraceAttach(os.Getppid()))
	try("process_vm_readv", call(unix.SYS_PROCESS_VM_READV, uintptr(os.Getppid())))
	try("pidfd_open", call(unix.SYS_PIDFD_OPEN, uintptr(os.Getppid())))
	try("signal a process", unix.Kill(os.Getppid(), 0))
	try("signal a thread", unix.Tgkill(os.Getppid(), os.Getppid(), 0))
	try("mount", unix.Mount("none", write, "tmpfs", 0, ""))
	try("bpf", call(unix.SYS_BPF))
	try("keyctl", call(unix.SYS_KEYCTL))
	try("perf_event_open", call(unix.SYS_PERF_EVENT_OPEN))
	try("userfaultfd", call(unix.SYS_USERFAULTFD))
	try("io_uring", call(unix.SYS_IO_URING_SETUP, 1))
	try("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	try("setns", unix.Setns(0, 0))
	try("setuid 0", call(unix.SYS_SETUID, 0))
	try("setresuid 0", call(unix.SYS_SETRESUID, 0, 0, 0))
	try("capset", call(unix.SYS_CAPSET))
	try("become dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
	try("raise a limit", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}))
	try("a unix socket", func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }())
	try("a packet socket", func() error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err }())
	try("a raw socket", func() error {
		_, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		return err
	}())
	try("memory as code", func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
		return err
	}())
	try("memory made code", func() error {
		m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return nil
		}
		return unix.Mprotect(m, unix.PROT_READ|unix.PROT_EXEC)
	}())
	try("prlimit with a pointer whose low half is set", func() error {
		l := unix.Rlimit{}
		return call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&l)), 0)
	}())
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		os.Exit(1)
	}
}
