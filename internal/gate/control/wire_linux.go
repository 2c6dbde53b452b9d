package control

import "golang.org/x/sys/unix"

const (
	sockFlags = unix.SOCK_CLOEXEC
	recvFlags = unix.MSG_CMSG_CLOEXEC
	sendFlags = unix.MSG_NOSIGNAL
)
