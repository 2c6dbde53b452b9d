package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver"
)

// besides is what runsc may write of a sandbox that uses no memory, in bytes.
const besides = 64 << 20

// chunk is how much is copied before somebody may have it stopped, in bytes.
const chunk = 64 << 20

// bound is how much runsc can have to write, in bytes: what the sandbox's memory holds, some
// of it swapped out, and no more than that about it. Both are in the cell's memory.
func bound(s driver.Stats) (int64, error) {
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return 0, os.NewSyscallError("sysinfo", err)
	}
	return boundOn(s, float64(host.Unit)*float64(host.Totalram), float64(host.Unit)*float64(host.Totalswap)), nil
}

func boundOn(s driver.Stats, memory, swap float64) int64 {
	if s.MemoryLimit > 0 {
		memory = min(memory, float64(s.MemoryLimit))
	}
	return int64(min(2*(memory+swap)+besides, math.MaxInt64/2))
}

// roomy refuses a folder on whose disk so many bytes have no room.
func roomy(dir string, n int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if float64(fs.Bavail)*float64(fs.Bsize) < float64(n) {
		return fmt.Errorf("%d bytes have no room on the disk of %s: %w", n, dir, unix.ENOSPC)
	}
	return nil
}

// take copies what the cell has written into its folder, into files that the cell of a
// later life can read. All of them together have at most so many bytes: a file without
// content can be of any size, and where gVisor's kernel has been broken in the cell
// has made whatever it likes there. No link in it leads out of the folder.
func take(ctx context.Context, folder, to string, most int64) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range memoryFiles {
		n, err := takeFile(ctx, root, name, to, most)
		if err != nil {
			return err
		}
		most -= n
	}
	return nil
}

func takeFile(ctx context.Context, root *os.Root, name, to string, most int64) (int64, error) {
	src, err := root.OpenFile(memoryName+"/"+name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	fi, err := src.Stat()
	switch {
	case err != nil:
		return 0, err
	case !fi.Mode().IsRegular():
		return 0, fmt.Errorf("%s is no regular file", name)
	case fi.Size() > most:
		return 0, fmt.Errorf("%s has %d bytes, more than the sandbox's memory can have given", name, fi.Size())
	}
	if err := roomy(to, fi.Size()); err != nil {
		return 0, err
	}
	dst, err := os.OpenFile(filepath.Join(to, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	var n int64
	for err == nil && n < fi.Size() {
		if err = ctx.Err(); err == nil {
			var more int64
			more, err = io.CopyN(dst, src, min(chunk, fi.Size()-n))
			n += more
		}
	}
	return n, errors.Join(err, dst.Chmod(0o444), dst.Close())
}
