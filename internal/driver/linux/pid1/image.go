package pid1

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control is the descriptor on which pid 1 finds its lease.
const Control = 3

// codeStart gives the address of the program text; it ends before the marker.
func codeStart() unsafe.Pointer

// marker ends the program text. It stands behind the last instruction and is
// never executed.
var marker = []byte{0xb1, 0xa1, 0x1e, 0x1e, 0x0e, 0x0d, 0x0f, 0x1d}

// maxCode bounds the search for the marker.
const maxCode = 4096

// Image gives the program as an ELF executable.
func Image() []byte {
	text := unsafe.Slice((*byte)(codeStart()), maxCode)
	n := bytes.Index(text, marker)
	if n < 0 {
		panic("pid1: program text has no end") // a broken build; the tests of this package execute the image
	}
	return elf(text[:n])
}

// elf wraps position-independent code into the smallest ELF executable that
// the kernel loads: a file header, one program header for the text, and one
// that says the stack is not executable.
func elf(code []byte) []byte {
	const (
		base    = 0x400000
		headers = 64 + 2*56
		page    = 0x1000
	)
	var b bytes.Buffer
	w := func(v any) { binary.Write(&b, binary.LittleEndian, v) }
	b.Write([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	w(uint16(2)) // ET_EXEC
	w(uint16(machine))
	w(uint32(1))
	w(uint64(base + headers)) // entry
	w(uint64(64))             // program headers
	w(uint64(0))              // no sections
	w(uint32(0))
	w([]uint16{64, 56, 2, 64, 0, 0})
	segment := func(kind, flags uint32, addr, size, align uint64) {
		w(kind)
		w(flags)
		w([]uint64{0, addr, addr, size, size, align})
	}
	size := uint64(headers + len(code))
	segment(1, 5, base, size, page)  // PT_LOAD, read and execute
	segment(0x6474e551, 6, 0, 0, 16) // PT_GNU_STACK, read and write
	b.Write(code)
	return b.Bytes()
}

// Open gives a descriptor of the program for execveat. It is made once for this
// process and stays open: every sandbox uses the same.
var Open = sync.OnceValues(func() (int, error) {
	return Seal("bailey-pid1", func(w io.Writer) error {
		_, err := w.Write(Image())
		return err
	})
})

// Seal gives a descriptor, close-on-exec, of a program in a memfd that nobody
// can change any more. It is executable for all and readable for none but root,
// which makes the kernel treat the process as undumpable from its first
// instruction on wherever root outside is not root inside.
func Seal(name string, fill func(io.Writer) error) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 a memfd was always executable
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if err := fill(f); err != nil {
		return -1, err
	}
	if err := unix.Fchmod(fd, 0o111); err != nil {
		return -1, err
	}
	seals := unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	// Pages that somebody holds for a moment, as the kernel does itself when it moves or
	// ages memory, make it busy after some 150 ms.
	for late := time.Now().Add(sealWithin); ; {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		if err == nil {
			break
		}
		if err != unix.EBUSY || time.Now().After(late) {
			return -1, fmt.Errorf("seal the copy: %w", err)
		}
	}
	// The number must outlive f, and be none that a child puts in place.
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 64)
}

// sealWithin bounds the wait for pages that somebody holds.
const sealWithin = 5 * time.Second

// Argv builds pid 1's own argument list: the paths to try, then the command.
func Argv(candidates, command []string) []string {
	argv := make([]string, 0, len(candidates)+len(command)+2)
	argv = append(argv, "bailey-init")
	argv = append(argv, candidates...)
	argv = append(argv, "")
	return append(argv, command...)
}
