// Package guest is the protocol between a sandbox's owner and bailey-init,
// the first process inside every sandbox that stays, and both ends of it.
//
// Client is the owner's end. Server is the end inside; only cmd/bailey-init
// and tests use it. PROTOCOL.md beside this file describes the bytes.
//
// Two kinds of transport exist and behave alike. Over a unix socket
// (Socket), descriptors are passed: a command's pipes or terminal are made by
// the owner and its bytes never pass through bailey-init. Over anything else
// (vsock, virtio-serial, a process's stdio: any io.ReadWriteCloser) the bytes
// are framed, with byte offsets, acknowledgements and a bound on what is kept.
//
// A Relay joins the two: an owner that passes descriptors, and a bailey-init behind a kernel
// of its own.
//
// Each end treats the other as hostile: every length has a bound that is
// checked before memory is taken, and a message that makes no sense ends the
// conversation, not the process.
//
// The package imports nothing of the project but its root package, and
// neither net nor anything that starts goroutines by being imported, because
// bailey-init has to stay small: hundreds of them run on one machine.
package guest
