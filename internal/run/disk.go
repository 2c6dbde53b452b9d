package run

import (
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// openDisk decides where the layers lie: with a disk limit on a file system of
// that size, otherwise in the run's folder.
func (b *builder) openDisk() error {
	b.base = place{b.run.Dir(), b.run.Dir()}
	if b.req.Limits.Disk == 0 {
		return nil
	}
	if b.req.Home != "" {
		return bailey.Errorf(bailey.CodeLimitUnavailable, "set the disk limit", "leave out --home, or --disk: without it the default limit counts the home too",
			"a home that is kept lies outside of the disk that has the limit")
	}
	if b.req.Writable {
		return bailey.Errorf(bailey.CodeLimitUnavailable, "set the disk limit", "leave out --writable, or --disk",
			"a workspace that is written straight through lies outside of the disk that has the limit")
	}
	if err := b.run.MakeDisk(b.req.Limits.Disk); err != nil {
		return err
	}
	here, err := b.run.LayerDir()
	b.base = place{here, b.run.DiskPoint()}
	return err
}

// diskInterval is how often free space is looked at: one system call.
const diskInterval = 200 * time.Millisecond

// watchDisk keeps the sandbox below the disk limit that nobody asked for.
// Without a file system of its own there is nothing that refuses a write; what
// can be done is to look, cheaply, and to end what has gone far beyond any use.
// The free space of the whole file system is the trigger; only when it has
// shrunk by the limit the run's folder is counted.
func (b *builder) watchDisk(in driver.Instance) (stop func()) {
	limit := bailey.DefaultLimits.Disk
	if b.run.Disk() != nil {
		return func() {}
	}
	dir := b.run.Dir()
	free := freeBytes(dir)
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		before := int64(0)
		if b.home != "" {
			before = usage(b.home) // what was kept counts for the run that wrote it
		}
		tick := time.NewTicker(diskInterval)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			now := freeBytes(dir)
			if free-now < limit {
				free = max(free, now) // somebody else has made room: count from there
				continue
			}
			used := usage(dir)
			if b.home != "" {
				used += usage(b.home) - before
			}
			if used >= limit {
				in.Kill(bailey.EndDiskFull)
				return
			}
			free = now + limit/2 // it was somebody else; look again later
		}
	})
	return func() {
		close(quit)
		wg.Wait()
	}
}

func freeBytes(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	return int64(st.Bavail) * st.Bsize
}

// usage adds up what the files below dir occupy. Files that vanish meanwhile
// do not count.
func usage(dir string) (n int64) {
	filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if fi, err := e.Info(); err == nil {
			n += fi.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return n
}
