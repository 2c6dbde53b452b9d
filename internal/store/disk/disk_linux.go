package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Min is the least size of a disk in bytes: less has no room for ext4's own
// tables and a few files.
const Min = 4 << 20

const makeTool = "mke2fs"

// Available says whether images can be made and mounted here; the error tells
// why not and what to do.
func Available() error {
	const what = "set the disk limit"
	if os.Geteuid() != 0 {
		return bailey.Errorf(bailey.CodeLimitUnavailable, what, "leave --disk out, or run as root",
			"a size-limited file system can be mounted by root only")
	}
	if _, err := tool(); err != nil {
		return bailey.Errorf(bailey.CodeLimitUnavailable, what, "install e2fsprogs", "mke2fs is not there")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return bailey.Errorf(bailey.CodeLimitUnavailable, what, "load the kernel module loop", "there are no loop devices: %w", err)
	}
	return nil
}

// tool finds mke2fs, which is often in a folder that PATH lacks.
func tool() (string, error) {
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if _, err := os.Stat(dir + makeTool); err == nil {
			return dir + makeTool, nil
		}
	}
	return exec.LookPath(makeTool)
}

// Create makes an image of size bytes at path, which must not exist. It is as good
// as the run that it belongs to, which does not survive a power cut either: it has
// no journal.
func Create(path string, size int64) error { return create(path, size, "^has_journal") }

// CreateLasting makes an image as Create does, whose files survive a power cut.
func CreateLasting(path string, size int64) error { return create(path, size, "has_journal") }

func create(path string, size int64, journal string) error {
	const what = "make the sandbox's disk"
	if err := Available(); err != nil {
		return err
	}
	if size < Min {
		return bailey.Errorf(bailey.CodeUsage, what, fmt.Sprintf("ask for %d bytes or more", int64(Min)), "%d bytes are too few for a file system", size)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	err = f.Truncate(size)
	f.Close()
	if err == nil {
		err = format(path, journal)
	}
	if err != nil {
		os.Remove(path)
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	return nil
}

// format makes the file system. No reserved blocks: the sandbox is not root to this
// file system.
func format(path, journal string) error {
	mke2fs, err := tool()
	if err != nil {
		return err
	}
	cmd := exec.Command(mke2fs, "-q", "-F", "-t", "ext4", "-O", journal, "-m", "0",
		"-E", "lazy_itable_init=1,nodiscard", path)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mke2fs: %w: %s", err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// Mount is an image that is mounted, attached nowhere.
type Mount struct{ f, fresh *os.File }

// Open mounts the image at path. The loop device goes with the last descriptor.
func Open(path string) (*Mount, error) {
	fail := func(step string, err error) (*Mount, error) {
		return nil, bailey.Errorf(bailey.CodeStorage, "mount the sandbox's disk", "", "%s: %w", step, err)
	}
	img, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fail(path, err)
	}
	defer unix.Close(img)
	name, loop, err := attach(img)
	if err != nil {
		return fail("attach a loop device", err)
	}
	defer unix.Close(loop)
	f, step, err := mount(name)
	if err != nil {
		return fail(step, err)
	}
	return &Mount{f: f}, nil
}

// mount mounts a loop device's file system; step names what has failed.
func mount(device string) (f *os.File, step string, err error) {
	fs, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, "fsopen", err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "source", device); err != nil {
		return nil, "fsconfig", err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, "mount ext4", err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, "fsmount", err
	}
	return os.NewFile(uintptr(fd), "disk"), "", nil
}

// Fresh gives another mount of the same file system, also attached nowhere: one
// can be attached once only. It stays the Mount's and is closed by the next call.
func (m *Mount) Fresh() (*os.File, error) {
	const what = "mount the sandbox's disk"
	var st unix.Stat_t
	err := unix.Fstat(int(m.f.Fd()), &st)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	f, step, err := mount("/dev/loop" + strconv.Itoa(int(unix.Minor(st.Dev))))
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "%s: %w", step, err)
	}
	var got unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &got); err != nil || got.Dev != st.Dev {
		f.Close()
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "the loop device has another file system now")
	}
	if m.fresh != nil {
		m.fresh.Close()
	}
	m.fresh = f
	return f, nil
}

// attach finds a free loop device for the image. Another process may take the
// same one first; then the next is asked for.
func attach(img int) (string, int, error) {
	ctl, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", -1, err
	}
	defer unix.Close(ctl)
	for {
		n, err := unix.IoctlRetInt(ctl, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", -1, err
		}
		name := "/dev/loop" + strconv.Itoa(n)
		loop, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", -1, err
		}
		config := unix.LoopConfig{Fd: uint32(img)}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		if err = unix.IoctlLoopConfigure(loop, &config); err == nil {
			return name, loop, nil
		}
		unix.Close(loop)
		if !errors.Is(err, unix.EBUSY) {
			return "", -1, err
		}
	}
}

// Adopt makes a Mount of the descriptor of one, which is the Mount's from then on.
func Adopt(f *os.File) *Mount { return &Mount{f: f} }

// File is the descriptor of the mount. It stays the Mount's.
func (m *Mount) File() *os.File { return m.f }

// Path is a path by which this process, and no other, reaches the root of the disk.
func (m *Mount) Path() string { return "/proc/self/fd/" + strconv.Itoa(int(m.f.Fd())) }

// Full says whether there is no more room, for bytes or for files. ext4 keeps
// a few blocks back for its own tables when it refuses a write, and refuses a
// write of many pages as a whole, so it counts as full when less is left than one
// such write may take.
func (m *Mount) Full() bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(m.f.Fd()), &st) != nil {
		return false
	}
	const oneWrite = 1 << 20
	return st.Bavail <= min(oneWrite/uint64(st.Bsize), st.Blocks/16) || st.Ffree == 0
}

// Close lets go of the mount. A nil Mount has nothing to let go of.
func (m *Mount) Close() error {
	if m == nil {
		return nil
	}
	if m.fresh != nil {
		m.fresh.Close()
	}
	if err := m.f.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
