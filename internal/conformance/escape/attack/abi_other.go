//go:build linux && !amd64

package main

import "golang.org/x/sys/unix"

func iopl() error {
	answer(unix.ENOSYS)
	return unix.ENOSYS
}
