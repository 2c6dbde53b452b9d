//go:build !linux

package disk

import (
	"os"

	"github.com/bailey-sandbox/bailey"
)

// Min is the least size of a disk in bytes.
const Min = 4 << 20

func unavailable() error {
	return bailey.Errorf(bailey.CodeLimitUnavailable, "set the disk limit", "leave --disk out", "size-limited disks need Linux")
}

// Available says that there are none here.
func Available() error { return unavailable() }

// Create fails with limit_unavailable.
func Create(string, int64) error { return unavailable() }

// CreateLasting fails with limit_unavailable.
func CreateLasting(string, int64) error { return unavailable() }

// Mount is never made here.
type Mount struct{}

// Open fails with limit_unavailable.
func Open(string) (*Mount, error) { return nil, unavailable() }

// Adopt gives what is of no use.
func Adopt(*os.File) *Mount { return &Mount{} }

// Fresh fails with limit_unavailable.
func (*Mount) Fresh() (*os.File, error) { return nil, unavailable() }

// File is nil.
func (*Mount) File() *os.File { return nil }

// Path is empty.
func (*Mount) Path() string { return "" }

// Full is false.
func (*Mount) Full() bool { return false }

// Close does nothing.
func (*Mount) Close() error { return nil }
