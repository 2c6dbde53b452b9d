//go:build unix && !linux

package control

// These systems set close-on-exec afterwards and have no MSG_NOSIGNAL; the Go
// runtime turns SIGPIPE on a socket into an error.
const (
	sockFlags = 0
	recvFlags = 0
	sendFlags = 0
)
