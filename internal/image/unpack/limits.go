package unpack

import (
	"fmt"

	"github.com/bailey-sandbox/bailey"
)

// Limits bounds what one layer may ask of the host. Every field must be
// positive.
type Limits struct {
	Entries int64 // entries in the tar, whiteouts included
	Bytes   int64 // bytes of the uncompressed tar, and of the files it makes, sparse ones at full length
	Names   int64 // bytes of all names and link targets together; they are held in memory
	Path    int   // bytes of one name or link target
	Depth   int   // components of one name
	// Ratio is how many times its compressed size a stream may grow to. It
	// counts from RatioFrom uncompressed bytes on, so that small, very even
	// layers pass.
	Ratio     int64
	RatioFrom int64
}

// DefaultLimits are wide enough for every published image known to us (the
// largest have some 700,000 files and 40 GiB in a layer) and narrow enough for
// a machine to survive a layer made to hurt it.
var DefaultLimits = Limits{
	Entries: 2_000_000,
	Bytes:   64 << 30,
	Names:   512 << 20,
	Path:    4095, // PATH_MAX less its NUL
	Depth:   256,
	Ratio:   500,

	RatioFrom: 512 << 20,
}

// maxComponent is NAME_MAX of every file system a store can lie on.
const maxComponent = 255

func (l Limits) check() error {
	if l.Entries <= 0 || l.Bytes <= 0 || l.Names <= 0 || l.Path <= 0 || l.Depth <= 0 || l.Ratio <= 0 || l.RatioFrom <= 0 {
		return bailey.Errorf(bailey.CodeUsage, "unpack a layer", "give every limit a value above zero", "a limit of the unpacker is not positive: %+v", l)
	}
	return nil
}

const fixSource = "use an image from a source you trust, or build it again"

func invalid(format string, args ...any) error {
	return bailey.Errorf(bailey.CodeImageInvalid, "unpack the layer", fixSource, format, args...)
}

func tooMuch(limit string, value any, format string, args ...any) error {
	return bailey.Errorf(bailey.CodeImageInvalid, "unpack the layer",
		fmt.Sprintf("raise the limit %s (now %v) if you trust the image", limit, value), format, args...)
}

func broken(format string, args ...any) error {
	return bailey.Errorf(bailey.CodeStorage, "unpack the layer",
		"check that the data folder has room, is writable and lies on a file system with extended attributes", format, args...)
}
