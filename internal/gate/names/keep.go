package names

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/policy"
)

// A kept table is a file that only grows: a line for each name, in the order of
// their addresses, that is there before anybody is told the address.
//
//	INDEX NAME CRC32C
//
// The sum, eight hexadecimal digits, is over what stands before it. What is behind the last
// end of a line was never told to anybody and is cut off; everything else that is
// not as it should be is damage.

// maxKept bounds the file, in bytes: a host name has at most 253.
const maxKept = MaxNames * (5 + 1 + 253 + 1 + 8 + 1)

// heldFor is how long another process may hold the file: a gate whose starter has
// died ends within a second.
const heldFor = 3 * time.Second

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Load reads the table that is kept in f, and from then on keeps each new name
// there. It takes f over, and holds a lock on it until Close.
func Load(f *os.File) (*Table, error) {
	t := &Table{}
	err := lock(f)
	if err == nil {
		err = t.load(f)
	}
	if err != nil {
		f.Close()
		return nil, bailey.Errorf(bailey.CodeStorage, "read the sandbox's table of names", "", "%w", err)
	}
	return t, nil
}

// lock waits for a gate before this one to be gone: two must not give one address
// to two names.
func lock(f *os.File) error {
	for deadline := time.Now().Add(heldFor); ; time.Sleep(2 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || err != unix.EWOULDBLOCK && err != unix.EINTR {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("another gate holds it")
		}
	}
}

func (t *Table) load(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxKept {
		return fmt.Errorf("it is no table: a file of %d bytes, %s", fi.Size(), fi.Mode())
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, fi.Size()))
	if err != nil {
		return err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	if t.names, t.index, err = parseKept(whole); err != nil {
		return err
	}
	if len(whole) < len(text) {
		if err := f.Truncate(int64(len(whole))); err != nil {
			return err
		}
	}
	t.file, t.size = f, int64(len(whole))
	return nil
}

// parseKept reads whole lines.
func parseKept(text []byte) (names []policy.Host, index map[string]uint32, err error) {
	for line := range bytes.Lines(text) {
		if len(names) == MaxNames {
			return nil, nil, fmt.Errorf("it has more than %d names", MaxNames)
		}
		i := uint32(len(names))
		fields := strings.Split(string(line), " ")
		if len(fields) != 3 || string(line) != keptLine(i, fields[1]) {
			return nil, nil, fmt.Errorf("its line %d is damaged", i+1)
		}
		h, err := policy.ParseHost(fields[1])
		if err != nil {
			return nil, nil, err
		}
		if _, literal := h.Addr(); literal || h.String() != fields[1] {
			return nil, nil, fmt.Errorf("%q is no canonical name", fields[1])
		}
		if _, twice := index[fields[1]]; twice {
			return nil, nil, fmt.Errorf("%q is there twice", fields[1])
		}
		if index == nil {
			index = map[string]uint32{}
		}
		names, index[fields[1]] = append(names, h), i
	}
	return names, index, nil
}

func keptLine(i uint32, name string) string {
	head := strconv.FormatUint(uint64(i), 10) + " " + name
	return fmt.Sprintf("%s %08x\n", head, crc32.Checksum([]byte(head), castagnoli))
}

// keep writes a name down. The caller holds the lock.
func (t *Table) keep(i uint32, name string) error {
	if t.file == nil {
		return nil
	}
	if t.broken != nil {
		return t.broken
	}
	line := keptLine(i, name)
	if n, err := t.file.WriteAt([]byte(line), t.size); err != nil {
		// A part of a line with the next one behind it would be damage.
		if n > 0 {
			t.broken = t.file.Truncate(t.size)
		}
		return err
	}
	t.size += int64(len(line))
	return nil
}

// Close lets go of the table's file. Names that are new from then on get no address.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		t.file.Close()
		t.broken = os.ErrClosed
	}
}
