package changes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// execList is the file, among the copies of a snapshot, that says what they
// are. Its time is that of the last beat.
const execList = "list"

// The owner of a run that writes straight through beats so often, and what has
// changed later than slack after the last beat was not changed by that run:
// the sandbox ends within a second of its owner.
const (
	beatInterval = time.Second
	beatSlack    = 5 * time.Second
)

type savedSnapshot struct {
	Roots []folder.Root
	Hooks []string
	Named []string
	Files []savedExec
}

type savedExec struct {
	Root int
	Path string
	ID   workspace.Identity
	Copy string
}

// Beat writes the snapshot down and then, until stop, that its owner lives, so
// that Recover can do after a death what Quarantine would have done. named are the
// patterns of what the person has allowed to be written.
func (s *ExecSnapshot) Beat(named []string) (stop func(), err error) {
	saved := savedSnapshot{Roots: s.roots, Hooks: s.hooks, Named: named}
	for i, files := range s.files {
		for p, f := range files {
			saved.Files = append(saved.Files, savedExec{i, p, f.id, f.copy})
		}
	}
	list := filepath.Join(s.run.Dir(), execCopies, execList)
	f, err := os.OpenFile(list+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = errors.Join(encodeList(f, &saved), f.Close())
	}
	if err == nil {
		err = os.Rename(list+".new", list)
	}
	if err != nil {
		return nil, scanError(err)
	}
	if err := s.reserve(); err != nil {
		return nil, scanError(err)
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(beatInterval)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case now := <-tick.C:
				os.Chtimes(list, now, now)
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
	}, nil
}

// execReserve is a file that keeps room for Quarantine: a command can fill the
// disk, and must not win by it.
const execReserve = "reserve"

// reserveSlack, in bytes, is for the folders of layers and the run's record.
const reserveSlack = 1 << 20

func (s *ExecSnapshot) reserve() error {
	room := int64(reserveSlack)
	for _, files := range s.files {
		for _, f := range files {
			room += f.id.Size + 4096
		}
	}
	f, err := os.OpenFile(filepath.Join(s.run.Dir(), execCopies, execReserve), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, room); !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil // this file system keeps no room for anybody
}

// free gives the room back that reserve has kept.
func (s *ExecSnapshot) free() { os.Remove(filepath.Join(s.run.Dir(), execCopies, execReserve)) }

// Leave lets go of the snapshot and leaves its copies, so that Recover tries
// again what Quarantine could not do.
func (s *ExecSnapshot) Leave() error { return unix.Close(s.copies) }

// NeedsRecover says, at the cost of one system call, whether a run's folder
// has a snapshot in it. Whether its owner is dead, its lock tells.
func NeedsRecover(run *folder.Run) bool {
	_, err := os.Lstat(filepath.Join(run.Dir(), execCopies))
	return err == nil
}

// Recover takes back what a run that wrote straight through has done to files
// that execute on the host, if its owner died before it could. What has
// changed since the death is the person's, and is left as it is. It gives
// what was taken back. The caller holds the run's lock.
func Recover(ctx context.Context, run *folder.Run) ([]Found, error) {
	dir := filepath.Join(run.Dir(), execCopies)
	f, err := os.Open(filepath.Join(dir, execList))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, folder.RemoveTree(dir) // the command had not been started
	}
	if err != nil {
		return nil, scanError(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, scanError(err)
	}
	saved, err := decodeList(f)
	if err != nil {
		return nil, scanError(fmt.Errorf("the list of copies is damaged: %w", err))
	}
	s := &ExecSnapshot{run: run, roots: saved.Roots, hooks: saved.Hooks, n: len(saved.Files)}
	for range s.roots {
		s.files = append(s.files, map[string]execFile{})
	}
	for _, e := range saved.Files {
		s.files[e.Root][e.Path] = execFile{id: e.ID, copy: e.Copy}
	}
	if s.copies, err = unix.Open(dir, dirFlags|unix.O_CLOEXEC, 0); err != nil {
		return nil, scanError(err)
	}
	named := func(_ int, p string) bool { return len(saved.Named) > 0 && Selection{Only: saved.Named}.Has(p) }
	all, err := s.FindNewExecClass(ctx, named)
	last := fi.ModTime().Add(beatSlack).UnixNano()
	var found []Found
	for _, f := range all {
		if when, ok := s.changed(f); ok && when <= last {
			found = append(found, f)
		}
	}
	if len(found) > 0 {
		if qerr := s.Quarantine(ctx, found); qerr != nil {
			s.Leave()
			return found, errors.Join(err, qerr)
		}
	}
	// What cannot be looked into is a person's to look at, and told once.
	return found, errors.Join(err, s.Close())
}

// changed gives the change time of what was found, in nanoseconds. Nothing
// can be told of what is gone, and it executes nowhere.
func (s *ExecSnapshot) changed(f Found) (int64, bool) {
	host, err := openRoot(s.roots[f.Root])
	if err != nil {
		return 0, false
	}
	defer unix.Close(host)
	fd, err := openBeneath(host, f.Path, unix.O_PATH|unix.O_NOFOLLOW, false)
	if err != nil {
		// In a folder that the command has closed: Quarantine opens it.
		return 0, f.Op != Deleted && !gone(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0, false
	}
	return st.Ctim.Nano(), true
}
