//go:build linux

package escape

import (
	"hash/fnv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// key gives a System V key of this run.
func (f *field) key() int {
	h := fnv.New32a()
	h.Write([]byte(f.nonce))
	return int(h.Sum32()&0x7fffffff) | 1
}

// segment makes a System V segment that everybody may use.
func (f *field) segment() (key int, b []byte, err error) {
	key = f.key()
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		return 0, nil, err
	}
	f.later(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	b, err = unix.SysvShmAttach(id, 0, 0)
	if err == nil {
		f.later(func() { unix.SysvShmDetach(b) })
	}
	return key, b, err
}

func call(nr uintptr, args ...uintptr) (int, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, e := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if e != 0 {
		return -1, e
	}
	return int(r), nil
}

// messageQueue makes a System V queue that everybody may use.
func (f *field) messageQueue(key int) (int, error) {
	id, err := call(unix.SYS_MSGGET, uintptr(key), unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err == nil {
		f.later(func() { call(unix.SYS_MSGCTL, uintptr(id), unix.IPC_RMID, 0) })
	}
	return id, err
}

func receiveMessage(id int) string {
	var msg struct {
		kind int64
		text [64]byte
	}
	n, err := call(unix.SYS_MSGRCV, uintptr(id), uintptr(unsafe.Pointer(&msg)), 64, 0, unix.IPC_NOWAIT)
	if err != nil {
		return ""
	}
	return string(msg.text[:n])
}

// semaphore makes a System V semaphore that everybody may use.
func (f *field) semaphore(key int) (int, error) {
	id, err := call(unix.SYS_SEMGET, uintptr(key), 1, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err == nil {
		f.later(func() { call(unix.SYS_SEMCTL, uintptr(id), 0, unix.IPC_RMID, 0) })
	}
	return id, err
}

func semaphoreValue(id int) int {
	const getval = 12
	n, _ := call(unix.SYS_SEMCTL, uintptr(id), 0, getval, 0)
	return n
}

// posixQueue makes a POSIX queue that everybody may use.
func (f *field) posixQueue(name string) (int, error) {
	p, err := unix.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	attr := &struct{ flags, maxMessages, size, now, pad1, pad2, pad3, pad4 int64 }{maxMessages: 2, size: 64}
	old := unix.Umask(0)
	q, err := call(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(p)), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o666, uintptr(unsafe.Pointer(attr)))
	unix.Umask(old)
	if err == nil {
		f.later(func() { unix.Close(q); call(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(p))) })
	}
	return q, err
}

func receivePosix(q int) string {
	buf := make([]byte, 64)
	n, err := call(unix.SYS_MQ_TIMEDRECEIVE, uintptr(q), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}
