//go:build linux && (amd64 || arm64)

package main

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxMessage is the longest file request or answer.
const maxMessage = 264 << 10

// mountRoot mounts what the host serves over the port, and carries its requests
// from then on.
func mountRoot(port *os.File) error {
	// Blocking: a thread waits for the kernel's requests.
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.New("open /dev/fuse: " + err.Error())
	}
	options := "fd=" + strconv.Itoa(fd) + ",rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read=" + strconv.Itoa(256<<10)
	if err := unix.Mount("bailey", rootAt, "fuse", 0, options); err != nil {
		return errors.New("mount the root: " + err.Error())
	}
	go func() { // requests
		buf := make([]byte, maxMessage)
		for {
			n, err := unix.Read(fd, buf)
			switch err {
			case nil:
			case unix.EINTR, unix.EAGAIN, unix.ENOENT: // a request that was given up
				continue
			default:
				return
			}
			if _, err := port.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	go func() { // answers
		buf := make([]byte, maxMessage)
		for {
			if _, err := io.ReadFull(port, buf[:4]); err != nil {
				return
			}
			n := binary.LittleEndian.Uint32(buf)
			if n < 16 || n > maxMessage {
				return
			}
			if _, err := io.ReadFull(port, buf[4:n]); err != nil {
				return
			}
			for { // one that was given up meanwhile is an error, and nobody's loss
				if _, err := unix.Write(fd, buf[:n]); err != unix.EINTR {
					break
				}
			}
		}
	}()
	return nil
}
