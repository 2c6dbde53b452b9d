package pid1

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"
)

// Kind says what a Report reports.
type Kind uint32

// The kinds of Report.
const (
	Started    Kind = 1 // Value is the command's pid inside
	NotStarted Kind = 2 // Value is the errno of the last execve worth telling
	Stopped    Kind = 3 // Value is the wait status
	Continued  Kind = 4 // Value is the wait status
	Ended      Kind = 5 // Value is the wait status; Usage is set
)

// Report is one message of pid 1 to its owner.
type Report struct {
	Kind  Kind
	Value uint32
	Usage syscall.Rusage
}

// ReportSize is the size of every message on Control, in bytes.
const ReportSize = 8 + int(unsafe.Sizeof(syscall.Rusage{}))

// ParseReport reads one message. Pid 1 is ours, but its memory lies in a
// sandbox: what does not have the right form is an error.
func ParseReport(b []byte) (Report, error) {
	if len(b) != ReportSize {
		return Report{}, fmt.Errorf("report of %d bytes, want %d", len(b), ReportSize)
	}
	r := Report{Kind: Kind(binary.NativeEndian.Uint32(b)), Value: binary.NativeEndian.Uint32(b[4:])}
	if r.Kind < Started || r.Kind > Ended {
		return Report{}, fmt.Errorf("report of unknown kind %d", r.Kind)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r.Usage)), unsafe.Sizeof(r.Usage)), b[8:])
	return r, nil
}
