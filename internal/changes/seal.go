package changes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// Names in the run's folder.
const (
	setName  = "changes"
	baseName = "bases"
)

// What Seal keeps of host files, in bytes. Above it, a conflict is still
// found, and only its report is poorer.
const (
	maxBase      = 1 << 20   // one file's content, and what is hashed
	maxBases     = 64 << 20  // all contents together
	maxHashed    = 256 << 20 // all files that are hashed together
	setVersion   = 1
	sealTempName = setName + ".new"
)

// Seal scans a run that has ended, and keeps the result in its folder with
// the identity of each host file, and the content of small text files, as they
// are now: what the host does between this moment and Apply is then found and
// can be shown. Sealing again gives the first result. The caller holds the
// run's lock.
func Seal(ctx context.Context, run *folder.Run) (*Set, error) {
	const what = "keep what the run changed"
	if run.LockFile() == nil {
		return nil, bailey.Errorf(bailey.CodeInternal, what, "", "the run's lock is not held")
	}
	if set, err := loadSet(run); err != nil || set != nil {
		return set, err
	}
	bases, err := os.OpenFile(filepath.Join(run.Dir(), baseName), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, scanError(err)
	}
	k := &keeper{w: bufio.NewWriterSize(bases, 1<<16), buf: make([]byte, maxBase)}
	set, err := scan(ctx, run, k)
	if errors.Is(err, unix.EACCES) && os.Geteuid() != 0 && folder.Foreign.Reclaim != nil {
		// The sandbox had several users, and the files of others are closed to
		// this one. Whose they were is not a change that is applied anyway.
		// Where that cannot be, the error names the file.
		if folder.Foreign.Reclaim(filepath.Join(run.Dir(), "layers")) == nil {
			k = &keeper{w: bufio.NewWriterSize(bases, 1<<16), buf: make([]byte, maxBase)}
			if err = bases.Truncate(0); err == nil {
				if _, err = bases.Seek(0, io.SeekStart); err == nil {
					set, err = scan(ctx, run, k)
				}
			}
		}
	}
	if err == nil {
		err = k.w.Flush()
	}
	if cerr := bases.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = saveSet(run, set)
	}
	if err != nil {
		return nil, scanError(err)
	}
	return set, nil
}

// keeper keeps what host files are when a run is sealed.
type keeper struct {
	w      *bufio.Writer
	at     int64
	hashed int64
	buf    []byte
}

func (k *keeper) old(c *Change, f *os.File) error {
	size := c.Host.Size
	if c.Stale || size > maxBase || k.hashed+size > maxHashed {
		return nil
	}
	n, err := io.ReadFull(f, k.buf[:size])
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // it shrank: the identity says so when it counts
		}
		return err
	}
	k.hashed += size
	c.Host.Sum, c.Host.HasContent = sum(k.buf[:n]), true
	if c.Binary || isBinary(k.buf[:n]) || k.at+size > maxBases {
		return nil
	}
	if _, err := k.w.Write(k.buf[:n]); err != nil {
		return err
	}
	c.Base = k.at + 1
	k.at += size
	return nil
}

// readBase gives the kept content of the host's file; nil when there is none.
func readBase(run *folder.Run, c *Change) ([]byte, error) {
	if c.Base == 0 {
		return nil, nil
	}
	f, err := os.Open(filepath.Join(run.Dir(), baseName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, c.Host.Size)
	if _, err := f.ReadAt(data, c.Base-1); err != nil {
		return nil, err
	}
	if sum(data) != c.Host.Sum {
		return nil, errors.New("the kept content of the file is damaged")
	}
	return data, nil
}

func saveSet(run *folder.Run, set *Set) error {
	tmp := filepath.Join(run.Dir(), sealTempName)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := encodeSet(f, set); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(run.Dir(), setName))
}

// loadSet reads the sealed set; nil when there is none.
func loadSet(run *folder.Run) (*Set, error) {
	f, err := os.Open(filepath.Join(run.Dir(), setName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, scanError(err)
	}
	defer f.Close()
	set, err := decodeSet(f)
	if err == nil && set.Run != run.ID() {
		err = fmt.Errorf("it is that of run %q", set.Run)
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "read what the run changed", "discard the run", "the kept list is damaged: %w", err)
	}
	return set, nil
}

// Discard throws the run's layers away, with all that Seal kept. Saved
// originals of an apply stay, so that it can still be taken back. The caller
// holds the run's lock.
func Discard(run *folder.Run) error {
	if run.LockFile() == nil {
		return bailey.Errorf(bailey.CodeInternal, "discard the run's changes", "", "the run's lock is not held")
	}
	run.Record.State = folder.StateDiscarded
	if err := run.Save(); err != nil {
		return err
	}
	for _, name := range []string{"layers", "disk", "disk.img", baseName, setName, sealTempName} {
		if err := folder.RemoveTree(filepath.Join(run.Dir(), name)); err != nil {
			return err
		}
	}
	return nil
}
