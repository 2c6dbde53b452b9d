//go:build linux

package nested

import (
	"fmt"
	"io"
)

// archive writes the "newc" form of cpio, which the kernel unpacks as its first
// file system (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	w    io.Writer
	next int
	err  error
}

const (
	modeDir  = 0o040000
	modeFile = 0o100000
)

func (a *archive) dir(name string) { a.entry(name, modeDir|0o755, nil) }

func (a *archive) file(name string, content []byte) { a.entry(name, modeFile|0o755, content) }

func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, nil)
	return a.err
}

func (a *archive) entry(name string, mode int, content []byte) {
	a.next++
	a.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.next, mode, 0, 0, 1, 0,
		len(content), 0, 0, 0, 0, len(name)+1, 0), 110)
	a.write(append([]byte(name), 0), 110+len(name)+1)
	a.write(content, len(content))
}

// write pads to four bytes what ends at a place that size tells.
func (a *archive) write(b []byte, size int) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
	}
	if pad := -size & 3; a.err == nil && pad > 0 && size != 110 {
		_, a.err = a.w.Write(make([]byte, pad))
	}
}
