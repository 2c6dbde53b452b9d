package peer

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// QEMUFeatures are what a boot of QEMU has.
var QEMUFeatures = []string{"the same kernel and monitor, emulated, as QEMU's manual starts them: one processor, a serial console, nothing of Bailey's",
	"until the kernel looks for its first program, which is not there: so no files, no agent, no command"}

// QEMU boots a kernel plainly.
type QEMU struct {
	Root      string // a folder with the monitor, its libraries and firmware, as their paths are
	Monitor   string // its path below Root
	Vmlinux   string
	Initramfs string
}

// comesSoFar is what the kernel says when it has found no program to start.
const comesSoFar = "Unable to mount root fs"

// bootWait is what only a machine that hangs takes.
const bootWait = 2 * time.Minute

// Boot starts a machine and waits for its end, which comes when it finds no program to start.
func (q *QEMU) Boot(ctx context.Context) (Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, bootWait)
	defer cancel()
	const libraries = "/lib/x86_64-linux-gnu"
	begin := time.Now()
	cmd := exec.CommandContext(ctx, q.Root+"/lib64/ld-linux-x86-64.so.2", "--library-path", q.Root+libraries, q.Root+"/"+strings.TrimPrefix(q.Monitor, "/"),
		"-L", q.Root+"/usr/share/qemu", "-M", "microvm,acpi=off,pit=on,pic=on,rtc=on,isa-serial=on", "-m", "256M", "-nodefaults", "-no-user-config",
		"-nographic", "-no-reboot", "-accel", "tcg", "-cpu", "max", "-kernel", q.Vmlinux, "-initrd", q.Initramfs,
		"-append", "console=ttyS0 panic=-1 reboot=t rdinit=/none", "-serial", "stdio")
	cmd.Env = []string{"QEMU_MODULE_DIR=" + q.Root + "/usr" + libraries + "/qemu"}
	out, err := cmd.CombinedOutput()
	v := Sample{Total: time.Since(begin)}
	said := string(out)
	if err != nil || !strings.Contains(said, comesSoFar) {
		return v, fmt.Errorf("the kernel did not come as far as its first program (%v): %q", err, said[max(0, len(said)-300):])
	}
	return v, nil
}
