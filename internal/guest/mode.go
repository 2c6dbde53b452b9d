package guest

import "io/fs"

// File type bits of st_mode, the same on every system that has them.
const (
	typeMask    = 0o170000
	typeSocket  = 0o140000
	typeSymlink = 0o120000
	typeRegular = 0o100000
	typeBlock   = 0o060000
	typeDir     = 0o040000
	typeChar    = 0o020000
	typeFIFO    = 0o010000
)

// goMode turns st_mode into Go's own mode bits.
func goMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & typeMask {
	case typeSocket:
		mode |= fs.ModeSocket
	case typeSymlink:
		mode |= fs.ModeSymlink
	case typeBlock:
		mode |= fs.ModeDevice
	case typeDir:
		mode |= fs.ModeDir
	case typeChar:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case typeFIFO:
		mode |= fs.ModeNamedPipe
	case typeRegular:
	default:
		mode |= fs.ModeIrregular
	}
	if m&0o4000 != 0 {
		mode |= fs.ModeSetuid
	}
	if m&0o2000 != 0 {
		mode |= fs.ModeSetgid
	}
	if m&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}
