//go:build linux

package nested

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested/plan"
)

// machine is what one virtual machine is made of.
type machine struct {
	kernel     Kernel
	start      string // the first file system, an archive
	disks      []string
	memory     int // MiB
	processors int
}

// writeStart writes the machine's first file system: its first process and the
// modules for the disks.
func writeStart(to string, k Kernel, inside string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	a := &archive{w: w}
	for _, dir := range []string{"proc", "sys", "dev", "disk", "modules"} {
		a.dir(dir)
	}
	b, err := os.ReadFile(inside)
	if err != nil {
		return err
	}
	a.file("init", b)
	modules, err := k.Early()
	if err != nil {
		return err
	}
	for i, m := range modules {
		b, err := os.ReadFile(m)
		if err != nil {
			return err
		}
		a.file(fmt.Sprintf("modules/%02d-%s", i, filepath.Base(m)), b)
	}
	return errors.Join(a.close(), w.Flush())
}

// qemu is the program; tests may look for it.
const qemu = "qemu-system-x86_64"

// boot runs the machine to its end and hands every event to tell.
func (m machine) boot(ctx context.Context, tell func(plan.Event)) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	r, w := os.NewFile(uintptr(pair[0]), "events"), os.NewFile(uintptr(pair[1]), "events")
	defer r.Close()
	args := []string{"-machine", "q35", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max", "-m", strconv.Itoa(m.memory), "-smp", strconv.Itoa(m.processors),
		"-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-serial", "stdio", "-monitor", "none",
		"-kernel", m.kernel.Image(), "-initrd", m.start,
		// An oops of the kernel is an end, and one that is seen.
		"-append", "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic mitigations=off cryptomgr.notests no_timer_check random.trust_cpu=on",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=events,fd=3", "-device", "virtserialport,chardev=events,name=" + plan.Port}
	for i, disk := range m.disks {
		id := "disk" + strconv.Itoa(i)
		args = append(args, "-drive", "if=none,format=raw,snapshot=on,id="+id+",file="+disk, "-device", "virtio-blk-pci,drive="+id)
	}
	cmd := exec.CommandContext(ctx, qemu, args...)
	console := &tail{max: 64 << 10}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		w.Close()
		return fmt.Errorf("start the machine: %w", err)
	}
	w.Close()
	done, err := readEvents(r, tell)
	if e := cmd.Wait(); e != nil && ctx.Err() == nil {
		err = errors.Join(err, e)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil && !done {
		err = errors.New("the machine ended before it was done")
	}
	if err != nil {
		return fmt.Errorf("%w; its console:\n%s", err, console.b)
	}
	return nil
}

// readEvents reads until the machine has ended; done says that it said so itself.
func readEvents(r io.Reader, tell func(plan.Event)) (done bool, err error) {
	lines := bufio.NewReader(r)
	for {
		line, e := lines.ReadBytes('\n')
		if e == io.EOF {
			return done, err
		} else if e != nil {
			return done, e
		}
		var event plan.Event
		if e := json.Unmarshal(bytes.TrimSpace(line), &event); e != nil {
			return done, fmt.Errorf("an event that is none: %w: %q", e, line)
		}
		if event.Fatal != "" {
			err = errors.New("the machine could not go on: " + event.Fatal)
		}
		done = done || event.Done
		tell(event)
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	b   []byte
	max int
}

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - t.max; over > 0 {
		t.b = t.b[over:]
	}
	return len(p), nil
}
