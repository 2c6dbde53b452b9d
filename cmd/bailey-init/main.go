//go:build linux && (amd64 || arm64)

// Command bailey-init is the first process of every sandbox that stays. It
// starts commands, serves files and reaps, at the request of the sandbox's
// owner at the other end of one connection (package internal/guest).
//
//	bailey-init [--fd N | --serial PATH | --vsock PORT | --stdio] [--lease]
//
//	bailey-init dial PORT
//
// --fd names an inherited end of a unix socket pair, 3 by default. With
// --lease, the sandbox lives as long as that connection: when its other end is
// closed, everything in the sandbox is killed and bailey-init exits. Without
// it, the sandbox stays, and on the other transports the owner can come back.
//
// It exits 0 after a shutdown that was asked for or the end of the lease, and
// 2 when it could not start.
//
// With dial it is no first process: it connects to a port of the loopback and joins its descriptors 0 and 1
// with the connection. It exits 3 when nobody listens there.
package main

import (
	"errors"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/bailey-sandbox/bailey/cmd/bailey-init/early"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"golang.org/x/sys/unix"
)

func main() { os.Exit(run(os.Args[1:])) }

// options are the command line.
type options struct {
	fd     int
	serial string
	vsock  int
	stdio  bool
	lease  bool
}

func parse(args []string) (o options, err error) {
	o.fd, o.vsock = 3, -1
	for len(args) > 0 {
		name := args[0]
		args = args[1:]
		switch name {
		case "--lease":
			o.lease = true
			continue
		case "--stdio":
			o.stdio = true
			continue
		}
		if len(args) == 0 {
			return o, errors.New("unknown or incomplete option " + strconv.Quote(name))
		}
		v := args[0]
		args = args[1:]
		switch name {
		case "--fd":
			o.fd, err = strconv.Atoi(v)
		case "--vsock":
			o.vsock, err = strconv.Atoi(v)
		case "--serial":
			o.serial = v
		default:
			err = errors.New("unknown option " + strconv.Quote(name))
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

func fail(what string, err error) int {
	os.Stderr.WriteString("bailey-init: cannot " + what + ": " + err.Error() + "\n")
	return 2
}

func run(args []string) int {
	if len(args) == 2 && args[0] == "dial" {
		return dial(args[1])
	}
	shrugSignals()
	if !early.Undumpable {
		return fail("protect itself", errors.New("PR_SET_DUMPABLE failed"))
	}
	debug.SetMaxStack(1 << 20)
	o, err := parse(args)
	if err != nil {
		return fail("read its command line", err)
	}
	next, err := transports(o)
	if err != nil {
		return fail("open its transport", err)
	}
	s, err := guest.NewServer(guest.ServerOptions{ReapAll: true, Files: unix.Rlimit{Cur: early.Files.Cur, Max: early.Files.Max}})
	if err != nil {
		return fail("start", err)
	}
	for {
		t, err := next()
		if err != nil {
			return fail("open its transport", err)
		}
		if t == nil { // the owner cannot come back, and the sandbox stays
			select {}
		}
		err = s.Serve(t)
		if errors.Is(err, guest.ErrShutdown) {
			return 0
		}
		if o.lease {
			unix.Kill(-1, syscall.SIGKILL)
			return 0
		}
	}
}

// transports gives the connections to the owner, one after the other; nil when
// no other can come.
func transports(o options) (func() (io.ReadWriteCloser, error), error) {
	switch {
	case o.vsock >= 0:
		return vsock(uint32(o.vsock))
	case o.serial != "":
		return func() (io.ReadWriteCloser, error) {
			return os.OpenFile(o.serial, os.O_RDWR|syscall.O_NOCTTY, 0)
		}, nil
	case o.stdio:
		return stdio()
	}
	unix.CloseOnExec(o.fd)
	s, err := guest.NewSocket(os.NewFile(uintptr(o.fd), "owner"))
	if err != nil {
		return nil, err
	}
	return once(s), nil
}

func once(t io.ReadWriteCloser) func() (io.ReadWriteCloser, error) {
	return func() (io.ReadWriteCloser, error) {
		now := t
		t = nil
		return now, nil
	}
}

// stdioPair is a connection over descriptors 0 and 1.
type stdioPair struct{ in, out *os.File }

func (p stdioPair) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p stdioPair) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p stdioPair) Close() error                { return errors.Join(p.in.Close(), p.out.Close()) }

// stdio moves descriptors 0 and 1 away, so that nothing else that runs here
// can write into the conversation, and puts /dev/null in their place.
func stdio() (func() (io.ReadWriteCloser, error), error) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	var f [2]*os.File
	for i := range f {
		fd, err := unix.FcntlInt(uintptr(i), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, err
		}
		// A pipe can wait in the poller; what cannot be asked to stays as it is.
		unix.SetNonblock(fd, true)
		f[i] = os.NewFile(uintptr(fd), "owner")
		if err := unix.Dup3(int(null.Fd()), i, 0); err != nil {
			return nil, err
		}
	}
	return once(stdioPair{f[0], f[1]}), nil
}

// vsock listens on a port for the host, and gives its connections one by one.
func vsock(port uint32) (func() (io.ReadWriteCloser, error), error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port}); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, 1); err != nil {
		return nil, err
	}
	return func() (io.ReadWriteCloser, error) {
		for {
			c, peer, err := unix.Accept4(fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if err == unix.EINTR || err == unix.ECONNABORTED {
				continue
			}
			if err != nil {
				return nil, err
			}
			if vm, ok := peer.(*unix.SockaddrVM); !ok || vm.CID != unix.VMADDR_CID_HOST {
				unix.Close(c) // a process of the sandbox itself
				continue
			}
			return os.NewFile(uintptr(c), "owner"), nil
		}
	}, nil
}
